"""`python -m gateway` is `agui-gateway`."""

from gateway.cli.main import main

if __name__ == "__main__":
    main()
