#!/usr/bin/env python3
"""Checks configurations, records and summaries against docs/schemas: those of runs of the program made here, and of all that
other tests have left in a folder, by the same build, studies too. Each key that is taken away, and each that is added, must be
found. Of a run that was killed there is what it has: whole lines, and perhaps no summary.

usage: schemas.py VIT_HYBRID FOLDER
       schemas.py --runs FOLDER            all runs of a folder alone (tests/support/check_runs.sh)
       schemas.py --studies FOLDER         the studies of a folder alone, by whichever program
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import jsonschema

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs/schemas"
MACHINE = SCHEMAS.parents[1] / "configs/machines/cirrus_cpu.json"  # of another machine: only the keys of its times count
# By the run's task, length and options:
OPTIONAL = {"train_loss", "untrained", "final", "test", "speed", "validation", "time", "find_lr",
            "predicted_per_step", "missing", "roof_missing", "peak_missing", "usage", "node", "gpu", "processors",
            "within_step", "joules_per_sample"}
OPTIONAL_OF = {("usage.schema.json", "step"), ("summary.schema.json", "process"), ("study.schema.json", "job"),
               ("study.schema.json", "command")}
FREE = {"libraries", "choices", "rmse", "acc", "persistence_rmse", "persistence_acc", "kernels", "rank_0", "stages", "within_step",
        "configuration", "lists", "values", "classes", "predicted", "closed_forms", "bytes_per_parameter", "phases", "curves",
        "baseline"}  # names are not fixed
OPEN = {"plan"}  # of another program's output: not all keys are told

failures = []


def check(condition, text):
    if not condition:
        failures.append(text)


class Schemas:
    def __init__(self):
        self.by_name, self.validators = {}, {}
        for path in sorted(SCHEMAS.glob("*.schema.json")):
            schema = json.loads(path.read_text(encoding="utf-8"))
            jsonschema.Draft202012Validator.check_schema(schema)
            check(schema["$id"] == path.name, f"{path.name} has the id {schema['$id']}")
            self.by_name[path.name] = schema

    def problem(self, name, document):
        """What is wrong with a document; None where nothing is. A record is looked at as what its kind says."""
        kind = kind_of(name, document)
        if (name, kind) not in self.validators:  # made once: it looks through the whole schema
            self.validators[name, kind] = self.validator(name, kind)
        if self.validators[name, kind] is None:
            return f"a record of the kind {kind}"
        error = jsonschema.exceptions.best_match(self.validators[name, kind].iter_errors(document))
        return error and f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"

    def validator(self, name, kind):
        """None for a kind that the schema does not know."""
        schema = dict(self.by_name[name])
        if "oneOf" in schema:
            of_kind = {"$ref": f"#/$defs/{kind}"}
            if of_kind not in schema.pop("oneOf"):
                return None
            schema.update(of_kind)
        return jsonschema.Draft202012Validator(self.without_references(name, schema))

    def without_references(self, name, schema):
        """With what they refer to in their place: jsonschema's newer versions look through all schemas at each reference."""
        if isinstance(schema, list):
            return [self.without_references(name, part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        result = {key: self.without_references(name, part) for key, part in schema.items() if key not in ("$ref", "$defs", "$id")}
        if "$ref" not in schema:
            return result
        file, _, place = schema["$ref"].partition("#/")
        referred = self.by_name[file or name]
        for key in place.split("/"):
            referred = referred[key]
        return {**result, "allOf": [*result.get("allOf", []), self.without_references(file or name, referred)]}


def kind_of(name, document):
    """Which of the parts of a schema a document is."""
    if name == "study.schema.json":
        return "state" if "state" in document else "study" if "format" in document else document.get("kind")
    return document.get("kind")


def objects_in(document, path=()):
    """(path, object) of each object in a document, but of equal ones in a list the first alone."""
    if isinstance(document, dict):
        yield path, document
        for key, value in document.items():
            if key not in OPEN:
                yield from objects_in(value, (*path, key))
    elif isinstance(document, list):
        for index, value in enumerate(document[:1]):
            yield from objects_in(value, (*path, index))


def changed(document, path, change):
    result = copy.deepcopy(document)
    place = result
    for key in path:
        place = place[key]
    change(place)
    return result


def has_free_names(path):
    """Whether the names of what an object holds are not fixed."""
    of_definition = path[:1] == ("definition",)
    return bool(path) and (path[-1] in FREE or of_definition and "rungs" in path[1:3])


def check_that_changes_are_found(schemas, name, document):
    for path, found in objects_in(document):
        where = ".".join(map(str, path))
        added = changed(document, path, lambda place: place.update({"a key that is not there": []}))
        check(schemas.problem(name, added), f"{name}: {document.get('kind', '')} {where}: a key that is too many is not found")
        if has_free_names(path):
            continue
        for key in found:
            if key in OPTIONAL or (name, key) in OPTIONAL_OF or path[-1:] == ("predicted_per_step",):
                continue
            lacking = changed(document, path, lambda place, key=key: place.pop(key))
            check(schemas.problem(name, lacking), f"{name}: {document.get('kind', '')} {where}: it is not found that {key} is missing")


def runs_in(folder):
    """A foreign metrics.jsonl in the way of a run has no configuration beside it, and a FIFO in its place is no file."""
    return sorted(path.parent for path in folder.rglob("metrics.jsonl") if path.is_file() and (path.parent / "config.yaml").is_file())


def documents_of(run):
    """(schema, document) of a run's folder; half a line of a run that was killed is none."""
    texts = []
    for name in ("metrics", "usage"):
        if (run / f"{name}.jsonl").is_file():
            *lines, _ = (run / f"{name}.jsonl").read_text(encoding="utf-8", errors="replace").split("\n")
            texts += [(f"{name}.schema.json", line) for line in lines]
    if (run / "summary.json").is_file():
        texts.append(("summary.schema.json", (run / "summary.json").read_text(encoding="utf-8", errors="replace")))
    for name, text in texts:
        try:
            yield name, json.loads(text)
        except ValueError:
            check(False, f"{run}: {name}: no JSON: {text[:100]}")


def is_of_another(run, version):
    """Whether an earlier build did the run, or a program that tests put in the place of ours, whose runs name no commit."""
    with open(run / "metrics.jsonl", encoding="utf-8", errors="replace") as file:
        first = file.readline()
    try:
        return json.loads(first).get("git_commit", "none") not in version
    except (ValueError, AttributeError):
        return False  # killed before there was a record, or damaged, which is found


def make_runs(program, folder):
    """Runs that have records of all kinds, one of them energy, by counters that stand still."""
    for name, text in (("name", "package-0"), ("energy_uj", "1000"), ("max_energy_range_uj", "100000")):
        pathlib.Path(folder, "counters/intel-rapl:0").mkdir(parents=True, exist_ok=True)
        pathlib.Path(folder, "counters/intel-rapl:0", name).write_text(text, encoding="utf-8")
    base = [program, "--depth=1", "--embed-dim=32", "--num-heads=2", "--generated-samples=32", "--generated-valid-samples=8",
            "--global-batch-size=8", "--device=cpu", "--threads=1"]
    for name, words in (("forecast", ["--steps=3"]), ("forecast", ["--steps=5", "--resume=auto", "--histogram-every=2"]),
                        ("classify", ["--task=classify", "--steps=2", f"--machine={MACHINE}",
                                      f"--energy-counters={folder}/counters"]),
                        ("test", ["--test-steps=3", "--steps=3"])):
        subprocess.run([*base, f"--run-dir={folder}/{name}", *words], check=True, capture_output=True)
    return [pathlib.Path(folder, name) for name in ("forecast", "classify", "test")]


def studies_in(folder):
    """(schema, document) of each study of a folder, in a list a study; `program`: its version, of study.json."""
    for path in sorted(folder.rglob("study.json")):
        files = [path, path.parent / "results.json", *sorted(path.parent.glob("points/*/state.json"))]
        documents = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
        yield path.parent, documents[0]["definition"].get("program"), documents


def check_documents(schemas, first, place, documents):
    """`first`: one document of each variety is added."""
    for name, document in documents:
        problem = schemas.problem(name, document)
        check(problem is None, f"{place}: {name}: {document.get('kind', '')}: {problem}")
        variant = (name, kind_of(name, document), document.get("state"), "top1" in document, document.get("test") is not None,
                   "time" in document, "stages" in document.get("energy", ()))
        first.setdefault(variant, document)


def check_runs(folder):
    schemas, number, runs = Schemas(), 0, runs_in(folder)
    check_configurations(schemas.by_name["configuration.schema.json"], runs)
    for run in runs:
        documents = list(documents_of(run))
        number += len(documents)
        check_documents(schemas, {}, run, documents)
    end(f"{number} records and summaries of {len(runs)} runs are as docs/schemas has them")


def check_studies(folder):
    schemas, first, number = Schemas(), {}, 0
    for place, _, documents in studies_in(folder):
        number += 1
        check_documents(schemas, first, place, [("study.schema.json", document) for document in documents])
    for (name, *_), document in first.items():
        check_that_changes_are_found(schemas, name, document)
    check(number > 0, f"{folder} has no studies")
    end(f"{number} studies are as docs/schemas has them")


def end(text):
    for failure in failures[:20]:
        print(f"schemas: {failure}", file=sys.stderr)
    if failures:
        sys.exit(f"schemas: {len(failures)} problems")
    print(text)


def check_configurations(schema, runs, program=None):
    """Those of runs; with a program its schema, the repository's own, and settings that it refuses, too."""
    try:
        import yaml
    except ImportError:
        print("[skipped] configurations: python3 has no yaml")
        return

    class Loader(yaml.SafeLoader):
        """As the program and editors have it, by YAML 1.2: off is a word, 1990-01-03 a text."""
        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in of if not tag.endswith(":timestamp") and (first in "tTfF" or not tag.endswith(":bool"))]
            for first, of in yaml.SafeLoader.yaml_implicit_resolvers.items()}

    def load(text):
        return yaml.load(text, Loader)

    validator = jsonschema.Draft202012Validator(schema)
    paths = [path for run in runs for path in run.glob("config*.yaml")]
    if program:
        printed = subprocess.run([program, "options", "--schema"], check=True, capture_output=True, text=True).stdout
        check(json.loads(printed) == schema, "vit_hybrid options --schema > docs/schemas/configuration.schema.json")
        paths += sorted((SCHEMAS.parents[1] / "configs").glob("*.yaml"))
        for text in ("lr: 0", "lr: fast", "dpeth: 3", "depth: many", "precision: fp8", "deterministic: 3", "base: {depth: -1}", "image_size: [3]"):
            check(not validator.is_valid(load(text)), f"'{text}' is a configuration")
        for text in ("lr: 1e-3", "dp: auto", "dp: null", "base: {depth: 3}", "image_size: 360x720", "tensor_model_parallel_size: 2"):
            check(validator.is_valid(load(text)), f"'{text}' is none")
    for path in paths:
        error = jsonschema.exceptions.best_match(validator.iter_errors(load(path.read_text(encoding="utf-8"))))
        check(error is None, f"{path}: {error and '.'.join(map(str, error.absolute_path))}: {error and error.message[:300]}")


def main():
    program, left = sys.argv[1], pathlib.Path(sys.argv[2])
    schemas = Schemas()
    first = {}
    num_documents = num_runs = 0
    with tempfile.TemporaryDirectory() as folder:
        version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        found = runs_in(left)
        others = [run for run in found if not is_of_another(run, version)]
        runs = make_runs(program, folder) + others
        check_configurations(schemas.by_name["configuration.schema.json"], runs, program)
        for run in runs:
            num_runs += 1
            documents = list(documents_of(run))
            num_documents += len(documents)
            check_documents(schemas, first, run, documents)
        for place, of_program, documents in studies_in(left):
            if of_program == ", ".join(line.strip() for line in version.splitlines()[:2]):
                check_documents(schemas, first, place, [("study.schema.json", document) for document in documents])
    for (name, *_), document in first.items():
        check_that_changes_are_found(schemas, name, document)
    check(any(has_times and has_energy for *_, has_times, has_energy in first if has_energy), "no summary with times and energy")
    kinds = {variant[1] for variant in first if variant[0] != "study.schema.json"} - {None}
    named = {ref["$ref"].rpartition("/")[2] for ref in schemas.by_name["metrics.schema.json"]["oneOf"]}
    # Where nothing is to be chosen there are no kernels; of the network tests/fault/stragglers.py looks at what there is;
    # nobody is slow but in slow_rank's run, where that is of this build.
    elsewhere = {"kernels", "network"} | (set() if any("slow_rank" in run.parts for run in others) else {"straggler"})
    missing = (named - elsewhere | {"usage"}) - kinds
    check(not missing, f"no records of {missing}")
    end(f"{num_documents} records and summaries of {num_runs} runs are as docs/schemas has them; {len(found) - len(others)} runs are of "
        "earlier builds or made up")


if __name__ == "__main__":
    alone = {"--runs": check_runs, "--studies": check_studies}
    if sys.argv[1] in alone:
        alone[sys.argv[1]](pathlib.Path(sys.argv[2]))
    else:
        main()
