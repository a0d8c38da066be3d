"""Make one document from runs: a page, figures and tables.

`write.write_report` is the entry point; `live.keep_report_current` repeats it while runs are in progress.

    collect     find runs and digests under paths, and read them
    digest      the format of a run's digest; extraction and label_mixes make it from the run's folder
    groups      put digests into tables of entries; an entry holds the runs that differ only in their seed
    claims/     compare entries with their uncertainty: the headline of a table, the verdicts on the paper's claims
    document    all content of a report
    sweep       the report and curves of a sweep; split: how an experiment splits its data
    write       the report's folder: html/ renders the page, figures/ draws pictures, sheet formats tables
"""
