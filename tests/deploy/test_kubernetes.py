"""The manifests for Kubernetes agree with Compose, the image, the rules of Prometheus and each other. In the night they
are held against the schemas of Kubernetes and of KEDA.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.models.foreign.installed import python_with

from .files import COMPOSE, ROLES, SERVICES, instructions, programs
from .kubernetes import FOLDER, Resource, built, chosen, container, environment, find_kubectl, of_kind, pods, secrets
from .test_alerts import RECORDED

WORKERS = ("instances", "delegates", "background")
KUBERNETES = ("1.29", "1.37")
"""The oldest and the newest whose schemas the validator has and the manifests are meant for."""
VALIDATOR, KEDA = "kubernetes-validate==1.37.0", "cloudcoil.models.keda==2.16.1.0"
PAGE = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> str:
    return find_kubectl(tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(scope="module")
def resources(kubectl: str) -> list[Resource]:
    """The whole example, and that the base can be built without it."""
    assert pods(built(kubectl, FOLDER / "base"))
    return built(kubectl, FOLDER / "example")


def test_each_process_runs_the_command_of_compose_as_the_user_of_the_image(resources: list[Resource]) -> None:
    found = pods(resources)
    (image_user,) = {int(text) for text in instructions("USER")}
    for name in (*WORKERS, "ui"):
        pod, service = found[f"acts-{name}"], SERVICES[name]
        assert container(pod)["args"] == service["command"]
        assert pod["spec"]["securityContext"]["runAsUser"] == image_user
        user = {"ui": "clients"}.get(name, name)
        assert environment(pod)["ACTS_BROKER_URL"]["value"] == f"redis://{user}:$(REDIS_PASSWORD)@$(REDIS_ADDRESS)"
    redis, service = container(found["acts-redis"]), SERVICES["redis"]
    assert (redis["command"], redis["image"]) == (service["command"], service["image"])
    assert set(service["environment"]) == set(environment(found["acts-redis"]))


def test_pods_fulfil_the_restricted_standard_and_write_only_where_they_may(resources: list[Resource]) -> None:
    (namespace,) = of_kind(resources, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in pods(resources).values():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(pod)["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container(pod)["resources"]["limits"]["memory"]
        assert pod["spec"]["automountServiceAccountToken"] is False
        # A Service's name would become a variable such as ACTS_UI_PORT, which is no setting.
        assert pod["spec"]["enableServiceLinks"] is False
        assert "/tmp" in {mount["mountPath"] for mount in container(pod)["volumeMounts"]}


def test_each_pod_has_the_password_of_its_own_user_and_those_who_ask_it_the_models_key(
    resources: list[Resource],
) -> None:
    found = {name.removeprefix("acts-"): set(secrets(pod)) for name, pod in pods(resources).items()}
    key = ("acts-model", "*")
    assert found == {
        "redis": {("acts", f"REDIS_PASSWORD_{role}") for role in ROLES},
        "instances": {("acts", "REDIS_PASSWORD_INSTANCES")},
        "delegates": {("acts", "REDIS_PASSWORD_DELEGATES"), key},
        "background": {("acts", "REDIS_PASSWORD_BACKGROUND"), key},
        "ui": {("acts", "REDIS_PASSWORD_CLIENTS"), ("acts-ui", "*")},
        "metrics": {("acts", "REDIS_PASSWORD_METRICS")},
    }


def test_a_worker_is_probed_as_the_image_says_and_outlives_an_absence_of_redis(resources: list[Resource]) -> None:
    (image,) = instructions("HEALTHCHECK")
    (command,) = re.findall(r"CMD (\[.*\])", image)
    for name in WORKERS:
        worker = container(pods(resources)[f"acts-{name}"])
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert worker[kind]["exec"]["command"] == json.loads(command)
            assert f"--timeout={worker[kind]['timeoutSeconds']}s" in image
        ready, alive = worker["readinessProbe"], worker["livenessProbe"]
        assert f"--interval={ready['periodSeconds']}s" in image
        assert f"--retries={ready['failureThreshold']}" in image
        assert alive["failureThreshold"] * alive["periodSeconds"] >= 600


def test_a_worker_has_the_same_time_to_finish_wherever_it_runs(resources: list[Resource]) -> None:
    spans = {pods(resources)[f"acts-{name}"]["spec"]["terminationGracePeriodSeconds"] for name in WORKERS}
    spans |= {int(SERVICES[name]["stop_grace_period"].removesuffix("s")) for name in WORKERS}
    spans |= {int(programs()[name]["stopwaitsecs"]) for name in WORKERS}
    for scaled in of_kind(resources, "ScaledObject").values():
        down = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
        (policy,) = down["policies"]
        assert (policy["type"], policy["value"]) == ("Pods", 1)
        spans.add(policy["periodSeconds"])  # the next one goes when this one has ended
        assert down["stabilizationWindowSeconds"] > policy["periodSeconds"]
    (seconds,) = spans
    assert PAGE.count(f"{seconds} seconds") >= 3  # everywhere, on Kubernetes and with systemd


def test_workers_are_scaled_by_the_figure_that_counts_what_is_left_to_do(
    resources: list[Resource], promtool: str, tmp_path: Path
) -> None:
    deployments, scaled = of_kind(resources, "Deployment"), of_kind(resources, "ScaledObject")
    asked = []
    for name, one in scaled.items():
        assert one["spec"]["scaleTargetRef"]["name"] == name
        assert "replicas" not in deployments[name]["spec"]  # or each `kubectl apply` would set them back
        (trigger,) = one["spec"]["triggers"]
        asked.append(trigger["metadata"]["query"])
        (figure,) = re.findall(r"acts:\w+", asked[-1])
        assert figure in RECORDED
        (queue,) = re.findall(r'queue(?:=~|=)"([a-z]+)', asked[-1])
        assert queue in container(pods(resources)[name])["args"]
    assert set(scaled) == {f"acts-{name}" for name in WORKERS}
    rules = [{"record": f"asked:{number}", "expr": one} for number, one in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    subprocess.run([promtool, "check", "rules", "--lint=none", str(tmp_path / "asked.yml")], check=True)


def test_the_figures_of_every_process_are_scraped_as_the_page_says(
    resources: list[Resource], promtool: str, tmp_path: Path
) -> None:
    (job,) = re.findall(r"^```yaml scrape\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    configuration = yaml.safe_load(job)
    (scraped,) = configuration["scrape_configs"]
    # Debian's Prometheus does not know Kubernetes; the rest it can check.
    assert scraped.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": ["acts"]}}]
    scraped["static_configs"] = [{"targets": ["127.0.0.1:9100"]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    subprocess.run([promtool, "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")], check=True)
    (keep,) = scraped["relabel_configs"]
    with_figures = [name for name, pod in pods(resources).items() if "metrics" in _ports(pod)]
    assert sorted(with_figures) == ["acts-background", "acts-delegates", "acts-instances", "acts-metrics"]
    for name in with_figures:
        part_of = pods(resources)[name]["metadata"]["labels"]["app.kubernetes.io/part-of"]
        assert re.fullmatch(keep["regex"], f"{part_of};metrics")


def test_budgets_services_and_policies_choose_pods_that_there_are_and_ports_that_these_have(
    resources: list[Resource],
) -> None:
    found = pods(resources)
    for name, budget in of_kind(resources, "PodDisruptionBudget").items():
        assert chosen(budget["spec"]["selector"], found) == {name}
        assert budget["spec"]["maxUnavailable"] == 1  # 0, or as many as there are, would keep a node from being drained
    for name, service in of_kind(resources, "Service").items():
        assert chosen({"matchLabels": service["spec"]["selector"]}, found) == {name}
        assert {port.get("targetPort", port["name"]) for port in service["spec"]["ports"]} <= set(_ports(found[name]))
    for policy in of_kind(resources, "NetworkPolicy").values():
        reached = chosen(policy["spec"]["podSelector"], found)
        assert reached
        for rule in policy["spec"].get("ingress", ()):
            for port in rule["ports"]:
                assert any(port["port"] in _ports(found[name]) for name in reached)


def test_what_no_policy_allows_is_refused_and_redis_is_reached_by_our_processes_alone(
    resources: list[Resource],
) -> None:
    found, policies = pods(resources), of_kind(resources, "NetworkPolicy")
    nothing = policies["acts-nothing"]["spec"]
    assert chosen(nothing["podSelector"], found) == set(found)
    assert set(nothing) == {"podSelector", "policyTypes"}
    assert set(nothing["policyTypes"]) == {"Ingress", "Egress"}
    (rule,) = policies["acts-redis"]["spec"]["ingress"]
    assert rule["from"][0] == {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "acts"}}}
    assert {next(iter(peer["podSelector"]["matchLabels"])) for peer in rule["from"]} == {
        "app.kubernetes.io/part-of",
        "acts-client",
    }
    allowed = {name for name, policy in policies.items() for rule in policy["spec"].get("egress", ()) if rule}
    assert allowed == {"acts-names-and-redis", "acts-outside"}
    assert chosen(policies["acts-outside"]["spec"]["podSelector"], found) == {f"acts-{name}" for name in WORKERS}
    assert COMPOSE["networks"]["data"] == {"internal": True}


@pytest.mark.nightly
def test_the_manifests_are_what_kubernetes_and_keda_take(kubectl: str, tmp_path: Path) -> None:
    python = python_with(tmp_path / "validating", VALIDATOR, KEDA)
    resources = built(kubectl, FOLDER / "example")
    (tmp_path / "resources.json").write_text(json.dumps(resources), encoding="utf-8")
    done = subprocess.run(
        [str(python), "-c", _VALIDATE, str(tmp_path / "resources.json"), *KUBERNETES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scaled = len(of_kind(resources, "ScaledObject"))
    assert done.stdout.split() == [str((len(resources) - scaled) * len(KUBERNETES) + scaled)]


# Of a model of KEDA what is written and not of the schema is dropped: then the two differ.
_VALIDATE = """
import json, sys
import kubernetes_validate
from cloudcoil.models.keda.v1alpha1 import ScaledObject

checked = 0
for one in json.loads(open(sys.argv[1]).read()):
    if one["kind"] == "ScaledObject":
        read = ScaledObject.model_validate(one).model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert read["spec"] == one["spec"], (read["spec"], one["spec"])
        checked += 1
        continue
    for version in sys.argv[2:]:
        kubernetes_validate.validate(one, version, strict=True)
        checked += 1
print(checked)
"""


def _ports(pod: Resource) -> dict[str, Any]:
    return {port["name"]: port["containerPort"] for port in container(pod).get("ports", ())}
