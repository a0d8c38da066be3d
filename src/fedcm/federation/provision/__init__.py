"""Create a federation: the authority, certificates, invitations and kits."""
