"""No secret is ever shown: each kind of it, in each place, with a fault that makes a driver complain, through every command."""
import concurrent.futures
import os
import signal
import subprocess
import time

import pytest
from harness import BINARY, Setup

SECRET = "S3CRpa55wort"
ENCODED = "%533CR%70a55wort"
SASL = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "someone"}
SSL = {"security.protocol": "ssl"}
# Nothing listens there, or something that speaks another language.
NO_MONGO = "127.0.0.1:1/?serverSelectionTimeoutMS=300"

# (name, {section: keys}, other arguments, part of the text of the file that is replaced: (old, new))
ROWS = [
    ("mongo: nobody answers", {"mongo": {"uri": f"mongodb://u:{SECRET}@{NO_MONGO}"}}),
    ("mongo: port", {"mongo": {"uri": f"mongodb://u:{SECRET}@127.0.0.1:port/"}}),
    ("mongo: slash", {"mongo": {"uri": f"mongodb://u:{SECRET}/{SECRET}@127.0.0.1:1/"}}),
    ("mongo: no @", {"mongo": {"uri": f"mongodb://u:{SECRET}/p"}}),
    ("mongo: no @ and no slash", {"mongo": {"uri": f"mongodb://u:{SECRET}"}}),
    ("mongo: no @ but options", {"mongo": {"uri": f"mongodb://u:{SECRET}/p?replicaSet=rs0"}}),
    ("mongo: two @", {"mongo": {"uri": f"mongodb://u:@{SECRET}@127.0.0.1:1"}}),
    ("mongo: encoded", {"mongo": {"uri": f"mongodb://u:{ENCODED}@{NO_MONGO}"}}),
    ("mongo: bad escape", {"mongo": {"uri": f"mongodb://u:{SECRET}%zz@127.0.0.1:1/"}}),
    ("mongo: srv", {"mongo": {"uri": f"mongodb+srv://u:{SECRET}@nowhere.invalid/"}}),
    ("mongo: scheme", {"mongo": {"uri": f"mongo://u:{SECRET}@127.0.0.1:1/"}}),
    ("mongo: no scheme", {"mongo": {"uri": f"u:{SECRET}@127.0.0.1:1"}}),
    ("mongo: file password", {"mongo": {"uri": f"mongodb://127.0.0.1:1/?tls=true&tlsCertificateKeyFile=/no/file&tlsCertificateKeyFilePassword={SECRET}"
                                               "&serverSelectionTimeoutMS=300"}}),
    ("mongo: mechanism", {"mongo": {"uri": "mongodb://u:p@127.0.0.1:1/?authMechanism=MONGODB-AWS&authMechanismProperties="
                                           f"AWS_SESSION_TOKEN:{SECRET}&serverSelectionTimeoutMS=300"}}),
    ("mongo: bad mechanism property", {"mongo": {"uri": f"mongodb://u:p@127.0.0.1:1/?authMechanismProperties={SECRET}"}}),
    ("mongo: refused", {"mongo": {"uri": f"mongodb://u:{SECRET}@STACK"}}),
    ("mongo: environment", {"mongo": {"uri": "mongodb://u:${THE_SECRET}@127.0.0.1:port/"}}),
    ("mongo: environment, nobody answers", {"mongo": {"uri": "mongodb://u:${THE_SECRET}@" + NO_MONGO}}),
    ("redis: nobody answers", {"redis": {"uri": f"redis://:{SECRET}@127.0.0.1:1/0", "timeout": "300ms"}}),
    ("redis: refused", {"redis": {"uri": f"redis://:{SECRET}@REDIS"}}),
    ("redis: user refused", {"redis": {"uri": f"redis://someone:{ENCODED}@REDIS"}}),
    ("redis: port", {"redis": {"uri": f"redis://:{SECRET}@127.0.0.1:port"}}),
    ("redis: no @", {"redis": {"uri": f"redis://:{SECRET}"}}),
    ("redis: no colon", {"redis": {"uri": f"redis://{SECRET}@127.0.0.1:1"}}),
    ("redis: scheme", {"redis": {"uri": f"http://:{SECRET}@127.0.0.1:1"}}),
    ("redis: environment", {"redis": {"uri": "redis://:${THE_SECRET}@127.0.0.1:port"}}),
    ("kafka: sasl.password", {"kafka": {"properties": {**SASL, "sasl.password": SECRET}}}),
    ("kafka: sasl.password to nobody", {"kafka": {"brokers": "127.0.0.1:1", "properties": {**SASL, "sasl.password": SECRET, "debug": "security,broker,conf"}}}),
    ("kafka: sasl.password alone", {"kafka": {"properties": {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.password": SECRET}}}),
    ("kafka: misspelt", {"kafka": {"properties": {**SASL, "sasl.pasword": SECRET}}}),
    ("kafka: environment", {"kafka": {"properties": {**SASL, "sasl.password": "${THE_SECRET}"}}}),
    ("kafka: key password", {"kafka": {"properties": {**SSL, "ssl.key.location": "/no/such/key", "ssl.key.password": SECRET}}}),
    ("kafka: key", {"kafka": {"properties": {**SSL, "ssl.key.pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"}}}),
    ("kafka: keystore", {"kafka": {"properties": {**SSL, "ssl.keystore.location": "/no/such/store", "ssl.keystore.password": SECRET}}}),
    ("kafka: kinit", {"kafka": {"properties": {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "GSSAPI",
                                               "sasl.kerberos.kinit.cmd": f": {SECRET}; false"}}}),
    ("kafka: bad kinit", {"kafka": {"properties": {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "GSSAPI",
                                                   "sasl.kerberos.kinit.cmd": f"echo {SECRET} %{{no.such.property}}"}}}),
    ("kafka: oauthbearer.config", {"kafka": {"properties": {**SASL, "sasl.mechanisms": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true",
                                                            "sasl.oauthbearer.config": f"nonsense={SECRET} {SECRET}"}}}),
    ("kafka: client secret", {"kafka": {"properties": {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
                                                       "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": SECRET,
                                                       "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}}}),
    ("kafka: bad oidc", {"kafka": {"properties": {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
                                                  "sasl.oauthbearer.client.secret": SECRET}}}),
    ("kafka: not its type", {"kafka": {"properties": {"sasl.password": [SECRET]}}}),
    ("file: not its type", {"mongo": {"uri": [f"mongodb://u:{SECRET}@h"]}}),
    ("file: a table", {"mongo": {"uri": {"password": SECRET}}}),
    ("file: misspelt key", {"mongo": {"urii": f"mongodb://u:{SECRET}@h", "uri": "mongodb://h"}}),
    ("file: misspelt section", {"mongodb": {"uri": f"mongodb://u:{SECRET}@h"}}),
    ("file: not closed", {"mongo": {"uri": f"mongodb://u:{SECRET}@h"}}, [], (SECRET + '@h"', SECRET + "@h")),
    ("file: no quotes", {"mongo": {"uri": f"mongodb://u:{SECRET}@h"}}, [], (f'"mongodb://u:{SECRET}@h"', f"{SECRET}")),
    ("file: bad escape", {"mongo": {"uri": f"mongodb://u:{SECRET}@h"}}, [], (SECRET, SECRET + "\\q")),
    ("file: twice", {"mongo": {"uri": f"mongodb://u:{SECRET}@h"}}, [], ("[mongo]", f'[mongo]\nuri = "mongodb://u:{SECRET}@x"')),
    ("environment: not there", {"mongo": {"uri": "mongodb://u:" + SECRET + "@${NO_SUCH_VARIABLE}/"}}),
    ("environment: default", {"mongo": {"uri": "mongodb://u:${NO_SUCH_VARIABLE:-" + SECRET + "}@127.0.0.1:port/"}}),
    ("environment: in a number", {"worker": {"threads": "${THE_SECRET}"}}),
    ("environment: in a choice", {"log": {"level": "${THE_SECRET}"}}),
    ("environment: in a duration", {"retry": {"max": "${THE_SECRET}"}}),
    ("environment: in an address", {"http": {"listen": "${THE_SECRET}"}}),
    ("--set", {}, ["--set", f"mongo.uri=mongodb://u:{SECRET}@127.0.0.1:port/"]),
    ("--set: a property", {}, ["--set", f'kafka.properties={{"sasl.password" = "{SECRET}", "sasl.mechanisms" = "none"}}']),
    ("--set: broken", {}, ["--set", f'mongo.uri="mongodb://u:{SECRET}@h']),
    ("--set: misspelt", {}, ["--set", f"mongo.uriii=mongodb://u:{SECRET}@h"]),
    ("--set: no equals sign", {}, ["--set", SECRET]),
    ("http: an URI", {"http": {"listen": f"http://u:{SECRET}@h:80"}}),
    ("http: credentials", {"http": {"listen": f"{SECRET}@127.0.0.1:80"}}),
    ("mongo: question mark", {"mongo": {"uri": f"mongodb://u:12/?{SECRET}=x@127.0.0.1:1"}}),
    ("mongo: unknown option", {"mongo": {"uri": f"mongodb://u:p@127.0.0.1:1/?bogus={SECRET}"}}),
    ("--set: not a key", {}, ["--set", f"mongodb://u:{SECRET}@h"]),
]


def shown_by(words, environment, stdin=b""):
    """What a command that ends by itself prints."""
    done = subprocess.run([BINARY, *words], input=stdin, capture_output=True, env=environment, timeout=60)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def shown_by_run(words, environment):
    """run: until it ends, or has complained and been given a moment to complain more."""
    process = subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, stdin=subprocess.DEVNULL)
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        return process.communicate(timeout=60)[0].decode(errors="replace")
    finally:
        process.kill()


def all_of_it(stack, directory, sections, options=(), replaced=None):
    """{command: what it printed}, and the exit status of check --connect."""
    setup = Setup(stack, directory, "no-such-topic", collection=stack.mongo["tests"]["secrets"], dead_letters=False)
    setup.sections["log"]["level"] = "debug"
    for name, keys in sections.items():
        setup.sections.setdefault(name, {}).update(
            {key: value.replace("STACK", stack.mongo_uri.split("//")[1]).replace("REDIS", stack.redis_uri.split("//")[1])
             if isinstance(value, str) else value for key, value in keys.items()})
    file = setup.file()
    text = file.read_text()
    if replaced:
        assert replaced[0] in text
        file.write_text(text.replace(*replaced, 1))
    environment = {**os.environ, "THE_SECRET": SECRET}
    base = ["-c", str(file), *options]
    shown = {}
    shown["check"] = shown_by(["check", *base], environment)[1]
    status, shown["check --connect"] = shown_by(["check", "--connect", *base], environment)
    shown["check --json"] = shown_by(["check", "--connect", "--json", *base], environment)[1] if "mongo" in sections else ""
    shown["explain"] = shown_by(["explain", "--topic", "no-such-topic", "--connect", *base], environment, b'{"eventId": "e"}')[1]
    if "kafka" not in sections:  # these wait for the brokers
        for command in (["init"], ["verify"], ["dlq", "list"]):
            shown[" ".join(command)] = shown_by([*command, *base], environment)[1]
    shown["run"] = shown_by_run(["run", *base], environment)
    return status, shown


@pytest.fixture(scope="module")
def everything(stack, tmp_path_factory):
    """All rows side by side: most of the time is waiting for what is not there."""
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        jobs = {row[0]: pool.submit(all_of_it, stack, tmp_path_factory.mktemp("secrets"), *row[1:]) for row in ROWS}
        found = {name: job.result() for name, job in jobs.items()}
    print(f"[{len(found)} rows in {time.monotonic() - began:.0f} s]")
    return found


@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_no_secret_is_shown(everything, name):
    status, shown = everything[name]
    assert status != 0 or name.startswith(("kafka: sasl", "redis: ")), shown["check --connect"]
    for command, text in shown.items():
        assert text or command == "check --json", command
        low = text.lower()
        for part in (SECRET.lower(), ENCODED.lower(), SECRET[:6].lower(), SECRET[-6:].lower()):
            assert part not in low, f"{command}: {text}"


def test_the_table_would_find_one(everything):
    """The names that are no secret come through; so would the others."""
    assert "no-such-topic" in everything["mongo: nobody answers"][1]["check"]
    assert "mongodb://u:***@127.0.0.1:1/" in everything["mongo: nobody answers"][1]["check"]
