"""Turn argv into options, run one verb and print its report; decide nothing that a verb should decide."""
