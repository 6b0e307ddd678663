import pathlib
import sys

# Helper modules beside the tests (importlib mode does not look there by itself).
sys.path.insert(0, str(pathlib.Path(__file__).parent))
