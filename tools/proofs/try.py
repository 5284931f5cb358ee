import subprocess
import sys

from tools.proofs.catalog import PROOFS
from tools.proofs.faults import plant
from tools.proofs.solve import false_claim, find_failure, prove

if sys.argv[1:2] == ["--fault"]:
    p = next(p for p in PROOFS if p.name == sys.argv[2])
    plant(p.faults[int(sys.argv[3])])
    print("    fault", find_failure(p))
    sys.exit()
for p in PROOFS:
    if len(sys.argv) > 1 and p.name not in sys.argv[1:]:
        continue
    print(p.name, prove(p), flush=True)
    print("    false", false_claim(p), flush=True)
    for n in range(len(p.faults)):
        subprocess.run([sys.executable, "-m", "tools.proofs.try", "--fault", p.name, str(n)])
