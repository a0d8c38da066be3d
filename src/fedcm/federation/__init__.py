"""A real federation over NVIDIA FLARE: sites keep their data and train on their own machines.

Each role has a folder: `provision` makes kits, `check` checks them, `serve` runs the engine of a server or site,
`server` and `site` run inside that engine, `admin` submits and watches runs. The modules here are shared by the roles.
"""
