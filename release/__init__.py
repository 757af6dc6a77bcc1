"""Makes a release: the version everywhere, what is built of it, and a check that what was built installs and runs."""
