"""Sources of rows: the data files of folders, lake tables and native exports."""
