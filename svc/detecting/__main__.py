"""`python -m svc.detecting`: the detecting process, started by the service and ended with it."""

from svc.detecting.serving import main

if __name__ == "__main__":
    main()
