"""`python -m fedcm` is `fedcm`."""

from fedcm.cli.main import main

if __name__ == "__main__":
    main()
