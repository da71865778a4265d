#!/usr/bin/env bash
# Checks all runs of the program in a folder against docs/schemas: of a test's scratch folder, before it is removed.
# usage: check_runs.sh FOLDER
"$(dirname "${BASH_SOURCE[0]}")/../interop/interop.sh" ../program/schemas.py jsonschema --runs "$1" || [ $? = 77 ]
