"""What parties sign so that others can check it: the list of members, the audit log, and the manifest of a model."""
