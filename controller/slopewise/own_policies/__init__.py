"""Policies of users: files, folders and packages.

`catalogue.py` finds a policy by name, `loading.py` loads one from a file, `answers.py` validates its decisions,
`check.py` tests it against the contract (`contract.py`), `template.py` writes a new one. A policy imports
`slopewise.policy_api` only.
"""
