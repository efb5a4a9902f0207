"""examples/shortcuts: each goes wrong as it is said to, and idemsink does not."""
from test_examples import run


def test_shortcuts(stack, tmp_path):
    done = run(stack, tmp_path, "shortcuts")
    print(done.stdout, done.stderr[-2000:])
    assert done.returncode == 0
    assert done.stdout.count("   the shortcut ") == done.stdout.count("   idemsink ") == 6
