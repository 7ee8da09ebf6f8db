/* Lets one call of the system fail, or kills the process there: LD_PRELOAD=shim.so, and in the environment

     FAULT_PATH    only calls on files whose path contains this; without it nothing happens
     FAULT_KINDS   letters of the calls: w write, f sync, r rename, t truncate and allocate, o create, m map (all of them)
     FAULT_N       the number of the call, from 0 on; without it calls are only listed
     FAULT_ERROR   an errno; or KILL: SIGKILL before the call; TEAR: SIGKILL after half of a write; SHORT: half of it is written
     FAULT_CALLS   so many calls fail (1); 0: all from there on
     FAULT_LOG     a file that gets a line for each call: its number, its kind, its path, and FAULT if it failed

   The variables are read at the first call after FAULT_PATH was set, so a process may be forked from one that has the shim.
   A path of a rename is the new one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL = -1, TEAR = -2, SHORT = -3 };

static const char *path_part, *kinds, *log_file;
static long number = -1, calls = 1, count;
static int error;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int is_on(void) {
    const char *text;
    if (path_part) return 1;
    if (!(text = getenv("FAULT_PATH"))) return 0;
    if ((kinds = getenv("FAULT_KINDS")) == NULL) kinds = "wfrtom";
    log_file = getenv("FAULT_LOG");
    if (getenv("FAULT_N")) number = atol(getenv("FAULT_N"));
    if (getenv("FAULT_CALLS")) calls = atol(getenv("FAULT_CALLS"));
    const char *wanted = getenv("FAULT_ERROR");
    if (wanted)
        error = !strcmp(wanted, "KILL") ? KILL : !strcmp(wanted, "TEAR") ? TEAR : !strcmp(wanted, "SHORT") ? SHORT : atoi(wanted);
    path_part = text;
    return 1;
}

static void list_call(long n, char kind, const char *path, int fails) {
    REAL(int, "open64", const char *, int, ...);
    static ssize_t (*put)(int, const void *, size_t);
    if (!put) put = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char line[4200];
    int length = snprintf(line, sizeof line, "%ld %c %s%s\n", n, kind, path, fails ? " FAULT" : "");
    int fd = real(log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || put(fd, line, length) != length) abort();
    close(fd);
}

/* Whether this call is to fail; kills the process if that is wanted before the call. */
static int fails(char kind, int fd, const char *path) {
    char found[4096], link[64];
    if (!is_on() || !strchr(kinds, kind)) return 0;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, found, sizeof found - 1);
        if (length < 0) return 0;
        found[length] = 0;
        path = found;
    }
    if (!strstr(path, path_part)) return 0;
    long n = __sync_fetch_and_add(&count, 1);
    int does = number >= 0 && n >= number && (calls == 0 || n < number + calls);
    if (log_file) list_call(n, kind, path, does);
    if (does && (error == KILL || (error == TEAR && kind != 'w'))) kill(getpid(), SIGKILL);
    return does;
}

static int number_of_error(void) { return error > 0 ? error : EIO; }

static ssize_t after_tear(ssize_t written) {
    if (error == TEAR) kill(getpid(), SIGKILL);
    return written;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (fd <= 2 || !fails('w', fd, 0)) return real(fd, data, size);
    if (error < 0) return after_tear(real(fd, data, size > 1 ? size / 2 : size));
    errno = error;
    return -1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (!fails('w', fd, 0)) return real(fd, data, size, at);
    if (error < 0) return after_tear(real(fd, data, size > 1 ? size / 2 : size, at));
    errno = error;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec *parts, int many) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!fails('w', fd, 0)) return real(fd, parts, many);
    if (error < 0) return after_tear(real(fd, parts, 1));
    errno = error;
    return -1;
}

#define FAILING(kind, fd, path, failed) \
    if (fails(kind, fd, path)) { errno = number_of_error(); return failed; }

int fsync(int fd) {
    REAL(int, "fsync", int);
    FAILING('f', fd, 0, -1)
    return real(fd);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    FAILING('f', fd, 0, -1)
    return real(fd);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    FAILING('r', 0, to, -1)
    return real(from, to);
}

int renameat(int old, const char *from, int new, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    FAILING('r', 0, to, -1)
    return real(old, from, new, to);
}

int ftruncate64(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    FAILING('t', fd, 0, -1)
    return real(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    if (fails('t', fd, 0)) return number_of_error();
    return real(fd, at, size);
}

int posix_fallocate(int fd, off_t at, off_t size) { return posix_fallocate64(fd, at, size); }

int open64(const char *path, int flags, ...) {
    REAL(int, "open64", const char *, int, ...);
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, int);
        va_end(more);
    }
    if (flags & O_CREAT) FAILING('o', 0, path, -1)
    return real(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, int);
        va_end(more);
    }
    return open64(path, flags, mode);
}

void *mmap64(void *at, size_t size, int rights, int flags, int fd, off64_t from) {
    REAL(void *, "mmap64", void *, size_t, int, int, int, off64_t);
    if (fd >= 0 && (flags & MAP_SHARED)) FAILING('m', fd, 0, MAP_FAILED)
    return real(at, size, rights, flags, fd, from);
}

void *mmap(void *at, size_t size, int rights, int flags, int fd, off_t from) { return mmap64(at, size, rights, flags, fd, from); }
