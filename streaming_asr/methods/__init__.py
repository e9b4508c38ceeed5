"""Methods of streaming recognition: one YAML file and one Python module or folder each."""
