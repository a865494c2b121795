"""Where the soak has its parts from: the lab, the mesh of bench/scale, and attackers of bench/attacks."""
import pathlib, sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("reported", "scale_mesh", "hostile")]
