"""Ways to run the clients of a round; all give the same reports and the same mean.

local               all clients in this process
distributed         clients spread over the processes of a torch.distributed group
process_group       that group: sums, broadcasts and errors across processes
client_runner       runs the local steps of any client
client_states       client states in memory, and the interface of their storage
client_state_file   client states in one file that the workers of a machine share
backdoor            the success of a simulated backdoor
diagnosis           gradient statistics of a run: drift, noise, dissimilarity
estimates           unbiased estimates of such statistics from a sample of clients

Import from the modules: this package imports none of them, so that a command can start without loading torch.
"""
