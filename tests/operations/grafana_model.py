"""
A dashboard as Grafana's models read it and write it again: `FILE`, JSON on standard output.

The models are generated from the schema of Grafana 10.1, with panels and queries of Prometheus. A
field that they do not have is gone in what they write.
"""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()
read = Dashboard.from_json(json.loads(Path(sys.argv[1]).read_text()))
sys.stdout.write(JSONEncoder().encode(read))
