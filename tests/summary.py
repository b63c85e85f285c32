"""Adds up JUnit result files. Usage: summary.py FAILED_STEPS FILE.xml ...

Prints what failed and was skipped, and "N passed, N failed" (", N skipped") as the last line. A step that failed without a failing
test (a crash, a missing file) counts as one failure.
"""
import sys
import xml.etree.ElementTree as ET


def main():
    failed_steps = int(sys.argv[1])
    passed, failed, skipped = 0, [], []
    for path in sys.argv[2:]:
        for case in ET.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname') or ''} {case.get('name')}".strip()
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
            elif case.find("skipped") is not None:
                skipped.append(f"{name}: {case.find('skipped').get('message') or ''}")
            else:
                passed += 1
    print()
    for name in skipped:
        print("skipped:", name)
    for name in failed:
        print("FAILED:", name)
    n_failed = max(len(failed), failed_steps)
    if passed == 0:
        n_failed = max(n_failed, 1)
    print(f"{passed} passed, {n_failed} failed" + (f", {len(skipped)} skipped" if skipped else ""), flush=True)
    sys.exit(1 if n_failed else 0)


main()
