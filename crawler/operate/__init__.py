"""Operating jobs from outside: one set of methods for every job, whether a process crawls it or not.

    finding     the job that a name, a folder or a URL means
    folderjob   a job that one process crawls: asks its control socket, or opens the folder
    databasejob a job of several workers: reads and writes its rows

The command line (`cli`) and the console (`console`) show what these methods return.
"""
