"""`fedcm federation`: one module per command.

membership       create a federation, request and sign certificates
kits             check and start a server or a site
runs             what an admin does: run, watch, stop and fetch experiments
"""
