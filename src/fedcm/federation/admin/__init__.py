"""An admin's side of a federation: submit, watch, stop and fetch runs."""
