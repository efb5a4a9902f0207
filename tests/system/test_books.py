"""G5: every record is accounted for; --until-end; full bulks; the pages."""
import re

from confluent_kafka import Producer
from harness import ROOT, Setup, wait_until


def test_books_add_up_on_the_page_and_in_the_log(stack, make):
    topic = stack.topic(3)
    setup = make(topic)
    good = [({"eventId": f"e{i % 400}"}, f"k{i % 400}") for i in range(500)]
    bad = [(b"{", f"b{i}") for i in range(7)]
    tombstones = [(None, f"t{i}") for i in range(5)]
    stack.produce(topic, good + bad + tombstones)
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    metrics = worker.metrics()

    def total(outcome):
        return worker.metric("idemsink_partition_records_total", topic=topic, outcome=outcome)

    assert worker.metric("idemsink_partition_consumed_total", topic=topic) == 512
    assert [total(o) for o in ("inserted", "duplicate", "dead_letter", "skipped", "late", "dropped")] == [400, 100, 7, 5, 0, 0]
    assert worker.metric("idemsink_records_total", outcome="inserted") == 400
    assert worker.metric("idemsink_dead_letters_total", reason="json_syntax") == 7
    assert worker.metric("idemsink_lag_records", topic=topic) == 0
    assert worker.metric("idemsink_open_records", topic=topic) == 0
    assert worker.metric("idemsink_committed_offset", topic=topic) == 512 == worker.metric("idemsink_watermark_offset", topic=topic)
    assert any(key.startswith("idemsink_build_info{") for key in metrics)
    assert worker.get("/healthz")[0] == 200
    assert worker.get("/nothing")[0] == 404
    assert worker.terminate() == 0
    books = worker.books()
    assert books["consumed"] == 512 == sum(books[k] for k in ("inserted", "duplicate", "dead_letter", "skipped"))
    assert len(worker.saw("books of a partition")) == 3


def test_every_metric_is_documented(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    stack.produce(topic, [{"eventId": "e"}])
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    names = set(re.findall(r"^# TYPE (\S+)", worker.get("/metrics")[1], re.M))
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_until_end_stops_at_the_ends_seen_at_start(stack, make):
    topic = stack.topic(3)
    setup = make(topic)
    stack.produce(topic, [({"eventId": f"e{i}"}, str(i)) for i in range(1000)])
    setup.run_until_end()
    assert setup.settled()
    assert setup.collection.count_documents({}) == 1000
    setup.run_until_end()  # nothing to do is fine as well
    assert setup.collection.count_documents({}) == 1000


def test_until_end_with_an_empty_topic(stack, make):
    setup = make(stack.topic(2))
    setup.run_until_end(30)


def test_two_collections_from_interleaved_topics_keep_full_bulks(stack, make):
    first, second = stack.topic(1), stack.topic(1)
    setup = make(first)
    other = stack.collection()
    setup.topics = [first, second]
    setup.routes.append(Setup.route([second], other))
    for chunk in range(0, 10000, 100):  # interleaved as finely as a producer can
        for topic in (first, second):
            stack.produce(topic, [({"eventId": f"e{i}"}, f"k{i}") for i in range(chunk, chunk + 100)])
    setup.sections["worker"].update(threads=2, batch=500, linger="50ms")
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    for collection in (setup.collection, other):
        name = f"{collection.database.name}.{collection.name}"
        batches = worker.metric("idemsink_batch_records_count", route=name)
        records = worker.metric("idemsink_batch_records_sum", route=name)
        assert records == 10000
        assert records / batches > 250, f"{name}: {records / batches:.0f} records a bulk of at most 500"
        assert collection.count_documents({}) == 10000


def test_transaction_markers_leave_no_lag(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    producer = Producer({"bootstrap.servers": stack.brokers, "transactional.id": topic})
    producer.init_transactions(30)
    for commit, numbers in ((True, range(3)), (False, range(3, 6))):
        producer.begin_transaction()
        for i in numbers:
            producer.produce(topic, '{"eventId": "e%d"}' % i)
        producer.flush(30)  # an abort would purge what was not sent
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    wait_until(lambda: stack.ends(topic) == {0: 8}, 20, "both markers")  # 3 records, marker, 3 records, marker
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 3  # the aborted ones are not there
    assert stack.committed(setup.group, topic) == stack.ends(topic) == {0: 8}
