"""The CustomResourceDefinitions, generated from the models that validate files and make statuses.

`schema.py` turns a pydantic model into the schema that the API server wants, `rules.py` and `parameters.py` say in
CEL what a schema cannot, `definitions.py` puts both kinds together. `python -m controller.crds` writes
`manifests/crds/`.
"""
