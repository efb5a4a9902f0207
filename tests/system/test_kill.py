"""G1, G4: kill -9 at any moment loses nothing and makes nothing twice."""
import random
import time

from chaos import Feed, assert_settled, fast_sessions, watching
from harness import wait_until

PARTITIONS = 4


def wait_documents(setup, feed, count, seconds):
    """Until so many documents are there, or everything is."""
    wait_until(lambda: setup.collection.estimated_document_count() >= min(count, feed.events), seconds, f"{count} documents", pause=0.003)


def kill_along_the_way(setup, feed, start, kills, workers=2):
    """Kills one of the workers, at random, each time that a random number of documents is reached; starts it again at once."""
    running = [start(i) for i in range(workers)]
    for documents in sorted(random.sample(range(feed.events), kills)):
        wait_documents(setup, feed, documents, 30)
        time.sleep(random.choice((0, random.random() * 0.02)))
        victim = random.randrange(workers)
        assert running[victim].kill() == -9, running[victim].log_tail()  # it had not ended by itself
        running[victim] = start(victim)
    return running


def any_mode(setup):
    """The result is the same whichever it is."""
    setup.routes[0]["write"] = random.choice(("upsert", "insert", "auto"))
    print("write =", setup.routes[0]["write"])


def test_twenty_kills(stack, make, seed):
    feed = Feed(stack, PARTITIONS)
    setup = make(feed.topic)
    fast_sessions(setup)
    any_mode(setup)
    setup.sections["worker"].update(batch=50, threads=2, commit_interval="50ms")
    feed.send(15000, poison=60)
    assert feed.deliveries > 29000
    with watching(setup, feed):
        running = kill_along_the_way(setup, feed, lambda _: setup.start(), 20)
        setup.wait_settled(60)
    assert [worker.terminate() for worker in running] == [0, 0]
    assert_settled(setup, feed)


def test_kills_of_static_members(stack, make, seed):
    """kafka.instance_id: the killed member comes back to its partitions without a rebalance."""
    feed = Feed(stack, PARTITIONS)
    setup = make(feed.topic)
    any_mode(setup)
    setup.sections["worker"].update(batch=50, threads=2, commit_interval="50ms")
    feed.send(6000, poison=20)

    def start(i):
        setup.sections["kafka"]["instance_id"] = f"{setup.group}-{i}"
        return setup.start()

    with watching(setup, feed):
        running = kill_along_the_way(setup, feed, start, 8)
        setup.wait_settled(60)
    for worker in running:
        assert worker.terminate() == 0
    assert_settled(setup, feed)
