"""Run FedJAX on softmax regression: its federated averaging, one client after another through jax.jit.

FedJAX calls jax.tree_map, which newer JAX has only under another name. Its other backend, jax.pmap, needs
device_put_replicated, which newer JAX lacks; with jax 0.4.30 and one CPU device per core it was slower than jax.jit.
"""

import os
import sys
import time

from adapter import parse_task, print_times

TASK = parse_task(sys.argv[1:])
if TASK.threads == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import fedjax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402

jax.tree_map = jax.tree_util.tree_map


def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(batch["x"] @ params["weight"] + params["bias"])
    return -jnp.mean(jnp.take_along_axis(scores, batch["y"][:, None], axis=1))


def main() -> None:
    work, moments = TASK.work, []
    fedjax.set_for_each_client_backend("jit")
    data = fedjax.InMemoryFederatedData(
        {client: {"x": x, "y": y.astype("int32")} for client, (x, y) in enumerate(TASK.clients)}
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, work.cohort_size, seed=0)
    algorithm = fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.sgd(learning_rate=work.lr),
        fedjax.optimizers.sgd(learning_rate=1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs),
    )
    state = algorithm.init({"weight": jnp.zeros((*work.shape, 10)), "bias": jnp.zeros(10)})
    for _ in range(TASK.rounds):
        moments.append(time.time())
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
    print_times([*moments, time.time()])


if __name__ == "__main__":
    main()
