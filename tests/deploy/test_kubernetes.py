"""deploy/kubernetes: the manifests fit each other, and their times fit the gateway's."""

from __future__ import annotations

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from gateway import Settings, __version__
from tests.deploy.image import DOCKERFILE, steps
from tests.deploy.programs import DEPLOY, NAME

FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
MANIFESTS: dict[str, Any] = {found["kind"]: found for found in (yaml.safe_load(f.read_text("utf-8")) for f in FILES)}
POD = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
PROBES = ["startupProbe", "readinessProbe", "livenessProbe"]
ENV = {entry["name"]: entry for entry in CONTAINER["env"]}


def test_there_is_one_of_each_and_they_have_one_name() -> None:
    assert MANIFESTS.keys() == {"Deployment", "Service", "PodDisruptionBudget", "Ingress"}
    assert len(FILES) == len(MANIFESTS)
    assert {manifest["metadata"]["name"] for manifest in MANIFESTS.values()} == {"agui-gateway"}


def test_selectors_and_ports_lead_to_the_gateway() -> None:
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"],
        MANIFESTS["Service"]["spec"]["selector"],
        MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        POD["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    (port,) = CONTAINER["ports"]
    (served,) = MANIFESTS["Service"]["spec"]["ports"]
    assert served["targetPort"] == port["name"]
    (rule,) = MANIFESTS["Ingress"]["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert (backend["name"], backend["port"]["name"]) == ("agui-gateway", served["name"])
    image = {step.name: step.rest for step in steps(DOCKERFILE.read_text("utf-8"))}
    assert str(port["containerPort"]) == image["EXPOSE"]
    assert CONTAINER["image"] == f"agui-gateway:{__version__}"


def test_a_pod_has_the_time_that_its_drain_takes() -> None:
    command = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    assert POD["terminationGracePeriodSeconds"] > int(command[1]) + Settings().drain_timeout + 2
    update = MANIFESTS["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert (update["maxUnavailable"], update["maxSurge"]) == (0, 1)
    assert MANIFESTS["Deployment"]["spec"]["replicas"] == 2
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_asks_the_right_path_by_a_name_that_is_answered(name: str) -> None:
    request = CONTAINER[name]["httpGet"]
    assert request["path"] == ("/readyz" if name == "readinessProbe" else "/healthz")
    assert request["httpHeaders"] == [{"name": "Host", "value": ENV["AGUI_GATEWAY_ALLOWED_HOSTS"]["value"]}]
    assert CONTAINER[name]["timeoutSeconds"] <= CONTAINER[name]["periodSeconds"]


def test_a_blocked_loop_is_given_up_before_the_pod_is_killed() -> None:
    live, ready = CONTAINER["livenessProbe"], CONTAINER["readinessProbe"]
    assert live["periodSeconds"] * live["failureThreshold"] > Settings().loop_dead_after
    assert ready["periodSeconds"] * ready["failureThreshold"] < Settings().lease_seconds


def test_keys_come_from_a_secret_that_is_not_here() -> None:
    for name in ("API_KEYS", "AGUI_GATEWAY_STORE"):
        assert ENV[name].keys() == {"name", "valueFrom"}
        assert ENV[name]["valueFrom"]["secretKeyRef"]["name"] == "agui-gateway"
    assert "Secret" not in MANIFESTS


def test_the_pod_may_do_little() -> None:
    image = {step.name: step.rest for step in steps(DOCKERFILE.read_text("utf-8"))}
    context, pod = CONTAINER["securityContext"], POD["securityContext"]
    assert f"{pod['runAsUser']}:{pod['runAsGroup']}" == image["USER"]
    assert (pod["runAsNonRoot"], pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert POD["automountServiceAccountToken"] is False
    assert CONTAINER["resources"].keys() == {"requests", "limits"}


def test_the_ingress_lets_streams_and_histories_through() -> None:
    ingress = MANIFESTS["Ingress"]
    prefix = "nginx.ingress.kubernetes.io/"
    found = {name.removeprefix(prefix): value for name, value in ingress["metadata"]["annotations"].items()}
    assert found["proxy-buffering"] == "off"
    assert int(found["proxy-read-timeout"]) >= 4 * Settings().keep_alive
    assert found["proxy-body-size"] == f"{Settings().max_input_bytes // 2**20}m"
    assert "non_idempotent" not in found["proxy-next-upstream"]
    assert all(isinstance(value, str) for value in found.values())
    assert {rule["host"] for rule in ingress["spec"]["rules"]} == {NAME} == set(ingress["spec"]["tls"][0]["hosts"])
