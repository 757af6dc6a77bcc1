"""Policies that do not come with Slopewise: files, folders and packages of the user's.

`catalogue.py` finds a policy by its name wherever it is, `loading.py` makes one out of a file, `answers.py` keeps one
that fails from doing harm, `check.py` holds one to the contract (`contract.py`), `template.py` begins a new one. What
such a file may import is `controller/policy_api.py`.
"""
