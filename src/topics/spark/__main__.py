"""`python -m topics.spark`, and the file that spark-submit runs: the same as `topics pipeline run`."""

import sys

from topics.spark.pipeline.run import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
