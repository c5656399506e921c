"""A node of a Ray cluster is lost: its actors are, and their replacements find another node."""

import pytest
from ray.cluster_utils import Cluster
from tests.integration.actor_parts import CountingEnv, ModelAgent, Plan, Tuples, is_prefix, job
from tests.waiting import eventually

from arkml.async_trainer.actor_manager import (
    ActorManager,
    ActorManagerConfig,
    ActorParts,
    seed_of,
)
from arkml.async_trainer.runners.ray import RayRunner
from arkml.errors import Unavailable

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::ResourceWarning")]
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
PATIENCE = 120.0


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    made = Cluster(
        initialize_head=True,
        head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False},
    )
    yield made
    made.shutdown()


def test_more_actors_than_free_processors_are_refused(cluster):
    cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    with RayRunner(cluster.address) as runner:
        runner.start(job(0))

        with pytest.raises(Unavailable, match="no free CPU for actor 1: use fewer actors"):
            runner.start(job(1))


def test_the_actor_of_a_lost_node_is_replaced_on_another_one(cluster):
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    cluster.wait_for_nodes()
    parts = ActorParts(ModelAgent, [None, None], CountingEnv, Plan(), Tuples, None)
    runner = RayRunner(cluster.address)
    manager = ActorManager(ActorManagerConfig(n_buffer=10, runner="ray"), parts, runner)
    messages = []

    def receive_until(condition):
        def is_done():
            messages.extend(manager.receive(0.05))
            return condition()

        eventually(is_done, PATIENCE, interval=0)

    try:
        manager.run()
        manager.admit(400)
        manager.publish(0, 0)
        receive_until(lambda: len(messages) > 20)
        cluster.remove_node(nodes[0], allow_graceful=False)
        receive_until(lambda: manager.replacements)
        cluster.add_node(**NODE)
        manager.admit(800)
        receive_until(lambda: any(message.incarnation for message in messages))
    finally:
        stats = manager.stop_and_join()

    by_incarnation = {}
    for message in messages:
        by_incarnation.setdefault((message.id, message.incarnation), []).append(message)
    assert len({actor for actor, incarnation in by_incarnation if incarnation}) == 1
    for (actor, incarnation), sent in by_incarnation.items():
        items = [item for message in sent for item in message.pushed_items]
        assert [message.sequence for message in sent] == list(range(len(sent)))
        assert is_prefix(items, seed_of(0, actor, incarnation))
    assert sum(stat.env_steps for stat in stats) >= sum(len(m.pushed_items) for m in messages)
