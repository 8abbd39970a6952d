"""Where rows come from: the data files of folders, lake tables and native exports."""
