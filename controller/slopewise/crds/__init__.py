"""The CustomResourceDefinitions, generated from the models that validate files and make statuses.

`schema/from_models.py` turns a pydantic model into the schema that the API server wants, `rules.py` and `parameters.py`
say in CEL what a schema cannot, `definitions.py` puts both kinds together. `python -m slopewise.crds` writes
`manifests/crds/`.
"""
