"""Check the convergence theorem of the FedCM paper by measurement.

problems/   federated problems whose constants and minimum are known
theorem/    the theorem's quantities, bounds and step sizes, and a simulation of many replicates at once
rates/      `fedcm theory rates`: measure exponents and compare them with the proven ones
"""
