"""``python -m tests.supply_chain.bill_of_materials FILE``: what the product is shipped with, as CycloneDX 1.6 JSON.

The same packages give the same bytes: no time, no serial number, no path, no host.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tests.supply_chain.dependencies import (
    CONSTRAINTS,
    PRODUCT,
    NotInstalled,
    Package,
    constrained_versions,
    runtime_packages,
)
from tests.supply_chain.licences import licence_of

EXIT_NOT_WRITTEN: Final = 1
EXIT_USAGE: Final = 2


class OtherVersion(Exception):
    """Another version is installed than constraints.txt names: the bill would be of something nobody tested."""


def bill_of_materials() -> str:
    """The document, ending with a newline.

    Raises:
        NotInstalled: a runtime dependency is missing.
        OtherVersion: one is installed at another version than the tested one.
    """
    packages = runtime_packages()
    tested = constrained_versions(CONSTRAINTS.read_text(encoding="utf-8"))
    for package in packages.values():
        if package.name != PRODUCT and tested.get(package.name) != package.version:
            raise OtherVersion(
                f"{package.name} {package.version} is installed, and constraints.txt has "
                f"{tested.get(package.name, 'none')}: run `make clean` and try again"
            )
    components = {name: _component(package) for name, package in packages.items()}
    bom = Bom()
    bom.metadata.component = components[PRODUCT]
    for name, package in packages.items():
        if name != PRODUCT:
            bom.components.add(components[name])
        bom.register_dependency(components[name], [components[other] for other in sorted(package.requires)])
    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["serialNumber"], document["metadata"]["timestamp"]
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _component(package: Package) -> Component:
    kind = ComponentType.APPLICATION if package.name == PRODUCT else ComponentType.LIBRARY
    return Component(
        type=kind,
        name=package.name,
        version=package.version,
        bom_ref=package.name,
        purl=PackageURL("pypi", None, package.name, package.version),
        licenses=[LicenseFactory().make_from_string(licence_of(package))],
    )


def main(arguments: list[str]) -> int:
    """Write the file."""
    if len(arguments) != 1:
        print("usage: python -m tests.supply_chain.bill_of_materials FILE", file=sys.stderr)
        return EXIT_USAGE
    try:
        document = bill_of_materials()
    except (NotInstalled, OtherVersion) as error:
        print(error, file=sys.stderr)
        return EXIT_NOT_WRITTEN
    Path(arguments[0]).write_text(document, encoding="utf-8")
    print(f"{arguments[0]}: {len(json.loads(document)['components'])} packages beside {PRODUCT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
