# The same commands as in the README, for those who have make.
.PHONY: install test lint study bench

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	python3 -m venv .venv
	.venv/bin/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

test: install
	.venv/bin/python -m pytest -q -n 2

lint: install
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/ty check

study: install
	.venv/bin/python studies/tradeoff.py

bench: install
	.venv/bin/pip install -q -c constraints.txt -e '.[bench]'
	.venv/bin/python -m benchmarks.clock
	.venv/bin/python -m benchmarks.replay
