/* Everything a native program may do with the device's names and descriptors, each with a check.
 *
 * Runs on tests/makers/fake_kernel.py, whose ioctls use memory and descriptors as the caller requests. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#undef assert
#define assert(c)                                                                             \
    do {                                                                                      \
        if (!(c)) {                                                                           \
            fprintf(stderr, "line %d: %s (errno %s)\n", __LINE__, #c, strerror(errno));       \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

#define COMMAND(nr, size) _IOC(_IOC_READ | _IOC_WRITE, 'd', nr, size)
enum { ECHO, NEST, EXPORT, FENCE, SIGNAL, WAIT, IDENTIFY };
#define CARD "/dev/dri/card1"
#define BUFFER INT64_C(0x100000000)

static int is_alive(int fd)
{
    uint32_t value = 0x01020304;
    return !ioctl(fd, COMMAND(ECHO, 4), &value) && value == 0xfefdfcfb;
}

static void is_node(const struct stat *status, unsigned minor)
{
    assert(S_ISCHR(status->st_mode) && major(status->st_rdev) == 226 && minor(status->st_rdev) == minor);
}

static void names(void)
{
    struct stat status;
    struct statx more;
    char target[64];
    assert(!stat(CARD, &status));
    is_node(&status, 1);
    assert((status.st_mode & 0777) == 0660);
    assert(!lstat("/dev/dri/./../dri//renderD129", &status));
    is_node(&status, 129);
    assert(!stat("/dev/dri/by-path/platform-npu-render", &status));
    is_node(&status, 129);
    assert(!lstat("/dev/dri/by-path/platform-npu-render", &status) && S_ISLNK(status.st_mode));
    assert(readlink("/dev/dri/by-path/platform-npu-render", target, sizeof(target)) == 13);
    char full[PATH_MAX];
    assert(!strcmp(realpath("/dev/dri/by-path/platform-npu-render", full), "/dev/dri/renderD129"));
    assert(!statx(AT_FDCWD, CARD, 0, STATX_ALL, &more) && more.stx_rdev_minor == 1 && S_ISCHR(more.stx_mode));
    assert(stat("/dev/dri/card0", &status) && errno == ENOENT);
    assert(!access(CARD, R_OK | W_OK) && access(CARD, X_OK) && errno == EACCES);
    assert(open("/dev/dri/card7", O_RDWR) < 0 && errno == ENOENT);
    assert(open(CARD, O_RDWR | O_DIRECTORY) < 0 && errno == ENOTDIR);
    assert(open(CARD, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 && errno == EEXIST);
    assert(!stat("/dev/null", &status) && !stat("/proc/self/status", &status) && !stat("/tmp", &status));
    int cards = 0, entries = 0;
    DIR *folder = opendir("/dev/dri");
    assert(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        entries += entry->d_name[0] != '.';
        cards += !strcmp(entry->d_name, "card1") && entry->d_type == DT_CHR;
    }
    assert(cards == 1 && entries == 3);
    int fd = openat(dirfd(folder), "card1", O_RDWR);
    assert(fd >= 0 && is_alive(fd));
    assert(!fstatat(dirfd(folder), "renderD129", &status, 0));
    is_node(&status, 129);
    close(fd);
    closedir(folder);
    struct dirent **list;
    int found = scandir("/dev/dri", &list, NULL, alphasort);
    assert(found == 5 && !strcmp(list[3]->d_name, "card1"));
    while (found)
        free(list[--found]);
    free(list);
    glob_t matches;
    assert(!glob("/dev/dri/card*", 0, NULL, &matches) && matches.gl_pathc == 1);
    assert(!strcmp(matches.gl_pathv[0], CARD));
    globfree(&matches);
}

static void texts(void)
{
    char line[32] = "";
    FILE *file = fopen("/sys/kernel/debug/rknpu/version", "r");
    assert(file && fgets(line, sizeof(line), file) && !strcmp(line, "fake\n"));
    fclose(file);
    int fd = open("/sys/class/fake/delay", O_RDWR);
    assert(fd >= 0 && read(fd, line, sizeof(line)) == 6 && !memcmp(line, "hello\n", 6));
    assert(write(fd, "12\n", 3) == 3);
    assert(write(fd, "bad\n", 4) == -1 && errno == EINVAL);
    close(fd);
    assert(open("/sys/kernel/debug/rknpu/version", O_WRONLY) < 0 && errno == EACCES);
    file = fopen("/sys/class/fake/delay", "w");
    assert(file && fputs("34\n", file) >= 0 && !fclose(file));
}

static void copies(int fd)
{
    struct stat status;
    char name[64] = "", path[40];
    assert(!fstat(fd, &status));
    is_node(&status, 1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    assert(readlink(path, name, sizeof(name) - 1) > 0 && !strcmp(name, CARD));
    int copy = dup(fd);
    int other = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    assert(copy >= 0 && other >= 50 && dup2(fd, 60) == 60 && dup3(fd, 61, O_CLOEXEC) == 61);
    assert(is_alive(copy) && is_alive(other) && is_alive(60) && is_alive(61));
    close(copy);
    close(other);
    assert(is_alive(fd) && ioctl(copy, COMMAND(ECHO, 4), &status) < 0 && errno == EBADF);
    close(60);
    close(61);
    assert(lseek(fd, 0, SEEK_CUR) == 0 && write(fd, "x", 1) < 0);
    struct pollfd waits = {.fd = fd, .events = POLLIN};
    assert(poll(&waits, 1, 0) == 0);
}

static void memory(int fd)
{
    uint8_t *one = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, BUFFER);
    uint8_t *two = mmap64(NULL, 100, PROT_READ, MAP_SHARED, fd, BUFFER);
    assert(one != MAP_FAILED && two != MAP_FAILED);
    one[5] = 77;
    assert(two[5] == 77);
    munmap((void *)two, 100);
    assert(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    int32_t buffer = 1;
    assert(!ioctl(fd, COMMAND(EXPORT, 4), &buffer) && (fcntl(buffer, F_GETFD) & FD_CLOEXEC));
    int32_t kept = 0;
    assert(!ioctl(fd, COMMAND(EXPORT, 4), &kept) && !(fcntl(kept, F_GETFD) & FD_CLOEXEC));
    close(kept);
    struct stat status;
    assert(lseek(buffer, 0, SEEK_END) == 8192 && lseek(buffer, 0, SEEK_SET) == 0);
    assert(!fstat(buffer, &status) && status.st_size == 8192);
    uint8_t *three = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 4096);
    assert(three != MAP_FAILED);
    three[9] = 33;
    assert(one[4096 + 9] == 33);
    assert(mmap(NULL, 4096, PROT_READ, MAP_SHARED, buffer, 8192) == MAP_FAILED && errno == EINVAL);
    munmap(three, 4096);
    munmap(one, 8192);
    close(buffer);
}

static void pointers(int fd)
{
    static uint8_t from[100000], to[100000];
    for (size_t n = 0; n < sizeof(from); n++)
        from[n] = (uint8_t)n;
    struct {
        uint64_t from, to, count;
    } nest = {(uintptr_t)from, (uintptr_t)to, sizeof(from)};
    assert(ioctl(fd, COMMAND(NEST, 24), &nest) == (int)(sizeof(from) & 0xffff));
    assert(to[0] == from[sizeof(from) - 1] && to[sizeof(to) - 1] == from[0]);
    uint8_t *readable = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(readable + 4096, 4096, PROT_NONE);
    uint64_t bad[][3] = {{16, (uintptr_t)to, 4},
                         {(uintptr_t)from, 16, 4},
                         {(uintptr_t)from, (uintptr_t)readable, 4},
                         {UINT64_C(0xffffffff80000000), (uintptr_t)to, 8},
                         {(uintptr_t)from, UINT64_MAX - 2, 8},
                         {(uintptr_t)readable + 4000, (uintptr_t)to, 8192}};
    for (size_t n = 0; n < sizeof(bad) / sizeof(bad[0]); n++)
        assert(ioctl(fd, COMMAND(NEST, 24), bad[n]) == -1 && errno == EFAULT);
    assert(ioctl(fd, COMMAND(ECHO, 4), NULL) == -1 && errno == EFAULT);
    assert(ioctl(fd, COMMAND(ECHO, 4), readable) == -1 && errno == EFAULT);
    assert(ioctl(fd, COMMAND(ECHO, 4), readable + 4094) == -1 && errno == EFAULT);
    assert(ioctl(fd, COMMAND(99, 4), to) == -1 && errno == EINVAL);
    assert(ioctl(fd, FIOCLEX) == 0 && isatty(fd) == 0);
    munmap(readable, 8192);
    assert(is_alive(fd));
}

static void fences(int fd)
{
    int32_t fence = 0, wrong = 0;
    assert(!ioctl(fd, COMMAND(FENCE, 4), &fence));
    struct pollfd waits = {.fd = fence, .events = POLLIN};
    assert(poll(&waits, 1, 0) == 0);
    struct epoll_event event = {.events = EPOLLIN};
    int many = epoll_create1(0);
    assert(!epoll_ctl(many, EPOLL_CTL_ADD, fence, &event) && epoll_wait(many, &event, 1, 0) == 0);
    assert(!ioctl(fd, COMMAND(SIGNAL, 4), &fence));
    assert(poll(&waits, 1, 5000) == 1 && waits.revents == POLLIN);
    assert(epoll_wait(many, &event, 1, 5000) == 1);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fence, &set);
    assert(select(fence + 1, &set, NULL, NULL, &(struct timeval){5, 0}) == 1);
    assert(ioctl(fd, COMMAND(SIGNAL, 4), &wrong) == -1 && errno == EINVAL);
    wrong = 777;
    assert(ioctl(fd, COMMAND(SIGNAL, 4), &wrong) == -1 && errno == EBADF);
    close(many);
    close(fence);
}

static void *waiter(void *fd)
{
    int32_t milliseconds = 300;
    assert(!ioctl(*(int *)fd, COMMAND(WAIT, 4), &milliseconds));
    return NULL;
}

static int alarms;
static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void processes(int fd)
{
    int32_t mine = 0, theirs = 0;
    pthread_t threads[8];
    for (int n = 0; n < 8; n++)
        pthread_create(&threads[n], NULL, waiter, &fd);
    assert(is_alive(fd)); /* while all the others are inside */
    for (int n = 0; n < 8; n++)
        pthread_join(threads[n], NULL);
    assert(!ioctl(fd, COMMAND(IDENTIFY, 4), &mine) && mine == getpid());
    int status;
    pid_t child = fork();
    if (!child) {
        assert(!ioctl(fd, COMMAND(IDENTIFY, 4), &theirs) && theirs == mine); /* who opened it */
        close(fd);
        _exit(7);
    }
    assert(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7 && is_alive(fd));
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 100000}}, NULL);
    int32_t milliseconds = 20000;
    assert(ioctl(fd, COMMAND(WAIT, 4), &milliseconds) == -1 && errno == EINTR && alarms == 1);
    assert(is_alive(fd));
    int kept = dup(fd);
    char number[16];
    snprintf(number, sizeof(number), "%d", kept);
    child = fork();
    if (!child) {
        execl("/proc/self/exe", "probe", "inherited", number, (char *)NULL);
        _exit(9);
    }
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(kept);
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "inherited")) {
        assert(is_alive(atoi(argv[2])));
        return 0;
    }
    int fd = open(CARD, O_RDWR);
    assert(fd == 3 && is_alive(fd));
    names();
    texts();
    copies(fd);
    memory(fd);
    pointers(fd);
    fences(fd);
    processes(fd);
    for (int n = 3; n < 1024; n++)
        close(n); /* as daemons do: also descriptors of the library */
    fd = open(CARD, O_RDWR);
    assert(fd == 3 && is_alive(fd));
    puts("all well");
    return 0;
}
