#!/usr/bin/env python3
"""Judges the Kubernetes manifests of cli/launch by their schemas, offline. Development only, not in CI.

    python3 -m venv V && V/bin/pip install kubernetes-validate
    V/bin/python tests/cli/launch/judge_manifests.py CRD.yaml

CRD.yaml: the custom resource of the MPI operator, deploy/v2beta1/mpi-operator.yaml of github.com/kubeflow/mpi-operator.
Jobs, the StatefulSet and the Service are judged strictly by Kubernetes 1.31; the MPIJob by the operator's schema, in which an unknown field is a fault.
Each judge is first shown a manifest with a misspelt field, which it must refuse.
"""
import copy
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parents[3] / "cli" / "launch"


def closed(schema):
    """The schema with no further properties allowed where properties are named."""
    if isinstance(schema, dict):
        out = {k: closed(v) for k, v in schema.items()}
        if "properties" in out and "x-kubernetes-preserve-unknown-fields" not in out:
            out.setdefault("additionalProperties", False)
        return out
    return [closed(v) for v in schema] if isinstance(schema, list) else schema


def faults_of_job(job):
    try:
        kubernetes_validate.validate(job, "1.31", strict=True)
    except kubernetes_validate.ValidationError as e:
        return [str(e)]
    return []


def judge_of_mpijob(crd_file):
    crds = [d for d in yaml.safe_load_all(open(crd_file)) if d and d["kind"] == "CustomResourceDefinition"]
    version = next(v for v in crds[0]["spec"]["versions"] if v["name"] == "v2beta1")
    schema = closed(version["schema"]["openAPIV3Schema"])
    # a custom resource's schema leaves these fields to Kubernetes
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"].setdefault("apiVersion", {})
    schema["properties"].setdefault("kind", {})
    validator = jsonschema.Draft7Validator(schema)
    return lambda doc: ["/".join(map(str, e.path)) + ": " + e.message for e in validator.iter_errors(doc)]


def misspelt(doc, path, wrong):
    bad = copy.deepcopy(doc)
    at = bad
    for key in path[:-1]:
        at = at[key]
    at[wrong] = at.pop(path[-1])
    return bad


def main():
    job = yaml.safe_load(open(HERE / "indexed_job.yaml"))
    mpijob = yaml.safe_load(open(HERE / "mpijob.yaml"))
    service, hub, islands = yaml.safe_load_all(open(HERE / "islands.yaml"))
    faults_of_mpijob = judge_of_mpijob(sys.argv[1])
    pod = ["spec", "mpiReplicaSpecs", "Worker", "template", "spec"]
    shown = [
        ("islands.yaml", faults_of_job, service, ["spec", "clusterIP"], "clusterIp"),
        ("islands.yaml", faults_of_job, hub, ["spec", "serviceName"], "service"),
        ("islands.yaml", faults_of_job, islands, ["spec", "completionMode"], "completionsMode"),
        ("indexed_job.yaml", faults_of_job, job, ["spec", "parallelism"], "paralelism"),
        ("mpijob.yaml", faults_of_mpijob, mpijob, ["spec", "slotsPerWorker"], "slotPerWorker"),
        ("mpijob.yaml", faults_of_mpijob, mpijob, pod + ["terminationGracePeriodSeconds"], "gracePeriod"),
    ]
    bad = 0
    for name, faults, doc, path, wrong in shown:
        for f in faults(doc):
            print(f"{name}: {f}")
            bad = 1
        if not faults(misspelt(doc, path, wrong)):
            print(f"{name}: the judge does not see '{wrong}'")
            bad = 1
    # Kubernetes defines the pods of both resources
    for part in mpijob["spec"]["mpiReplicaSpecs"].values():
        as_job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": copy.deepcopy(part["template"])}}
        as_job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        for f in faults_of_job(as_job):
            print(f"mpijob.yaml: {f}")
            bad = 1
    print("refused" if bad else "accepted: indexed_job.yaml, islands.yaml, mpijob.yaml; six misspelt fields are refused")
    return bad


sys.exit(main())
