"""A training with actors in processes, to be killed; its actors write their process ids."""

import sys
import time

from tests.integration.actor_parts import Inbox, Plan, job

from arkml.async_trainer.runners.choice import make_runner


def main(runner_name, act, reports):
    runner = make_runner(runner_name)
    for actor in range(2):
        runner.start(job(actor, plan=Plan(act, 25, reports=reports)))
    runner.publish(0, 0)
    Inbox(runner).until(lambda seen: len(seen.items(0)) > 10 and len(seen.items(1)) > 10)
    print("they play", flush=True)
    while True:
        runner.receive(1.0)
        time.sleep(0.001)


if __name__ == "__main__":
    main(*sys.argv[1:])
