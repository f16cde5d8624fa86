#!/usr/bin/env python
"""Django's command line; `python manage.py help` lists its commands. `up` and `demo_worker` run without Django."""

import os
import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["up"]:
        from gateway.launch.supervisor import main

        sys.exit(main(sys.argv[2:]))
    if sys.argv[1:2] == ["demo_worker"]:
        from gateway.launch.demo_worker import main

        sys.exit(main(sys.argv[2:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
