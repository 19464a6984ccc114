"""Wiring of the sandbox runner: what of the settings becomes its provider and its sandbox.

Called by the command `sandbox-runner`. The service shares only the key with it, and the address.
"""

from __future__ import annotations

from typing import cast

from svc.application.addresses import integration_networks
from svc.config.table import Settings
from svc.outside.addresses import AddressRule
from svc.outside.engine import Engine
from svc.outside.microvms import MicroVmHost
from svc.outside.models.aws import CloudKeys
from svc.outside.models.provider import Surrounding, Way
from svc.runner.sandbox import NoSandboxBackend, SandboxBackend
from svc.runner.sandboxes.container import ContainerBackend
from svc.runner.sandboxes.hosted import HostedBackend
from svc.runner.sandboxes.local_cli import LocalCli


def surrounding(settings: Settings) -> Surrounding:
    """What this machine knows of a model provider."""
    return Surrounding(
        way=cast(Way, settings.agent_provider or "cloud_signed"),
        region=settings.cloud_region,
        base_url=settings.agent_base_url,
        model=settings.agent_model,
        output_tokens=settings.agent_output_tokens,
        context_tokens=settings.agent_context_tokens,
        api_key=settings.anthropic_api_key,
        bearer_key=settings.aws_bearer_token,
        keys=CloudKeys(
            settings.aws_access_key_id,
            settings.aws_secret_access_key,
            settings.aws_session_token,
            settings.aws_container_path,
            settings.aws_container_url,
            settings.aws_container_token,
        ),
        rule=AddressRule(integration_networks(settings)),
    )


def backend(settings: Settings) -> SandboxBackend:
    """Where scripts run."""
    if settings.sandbox_backend == "container":
        return ContainerBackend(
            Engine(str(settings.sandbox_engine)), settings.sandbox_image, settings.sandbox_work_volume
        )
    if settings.sandbox_backend == "hosted":
        key = settings.sandbox_hosted_key
        host = MicroVmHost(settings.sandbox_hosted_url or "", key or "", settings.sandbox_hosted_machines_url)
        return HostedBackend(
            host if key and settings.sandbox_hosted_url else None, settings.sandbox_hosted_template
        )
    return NoSandboxBackend(settings.sandbox_backend)


def local_cli(settings: Settings) -> LocalCli | None:
    """The host's agent CLI, where that is to do the runs."""
    return LocalCli(settings.sandbox_cli) if settings.sandbox_backend == "local" else None
