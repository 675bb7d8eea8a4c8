"""Most of what is here makes its files with torch, which comes with the extra `local`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
