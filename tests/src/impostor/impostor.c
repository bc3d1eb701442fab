/* An agent that tries to pass for the operator: it asks the daemon to stop another agent.
 *
 * impostor SOCKET VICTIM DEPTH TRIES
 *
 * Each attempt prints a line: its name, and the HTTP status that came back (0: none came). The last line is
 * "done". The process then stays, as an agent does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static const char *victim;

static void say(const char *attempt, int status) {
    char line[100];
    int length = snprintf(line, sizeof line, "%s %d\n", attempt, status);
    if (write(1, line, length) != length) _exit(9);
}

static void pause_us(long us) {
    struct timespec span = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&span, NULL);
}

static int connected(int fd) {
    return connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

/* Sends the request over a connection, and gives the status of the answer. */
static int ask(int fd) {
    char text[4096];
    int length = snprintf(text, sizeof text,
                          "POST /api/v1/agents/%s/stop HTTP/1.1\r\nhost: defib\r\nconnection: close\r\n"
                          "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}", victim);
    int status = 0, have = 0, got;
    if (send(fd, text, length, MSG_NOSIGNAL) != length) return 0;
    while (have < 64 && (got = read(fd, text + have, 64 - have)) > 0) have += got;
    text[have] = 0;
    sscanf(text, "HTTP/1.1 %d", &status);
    return status;
}

static int ask_anew(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int status = connected(fd) ? ask(fd) : -1;
    close(fd);
    return status;
}

/* Waits for the number that another process writes. */
static int told(int fd) {
    int status = -2;
    if (read(fd, &status, sizeof status) != sizeof status) return -2;
    return status;
}

static void tell(int fd, int status) {
    if (write(fd, &status, sizeof status) != sizeof status) _exit(9);
}

/* The last process of a chain of living ancestors asks. */
static void deep(int depth) {
    int result[2];
    if (pipe(result)) _exit(9);
    if (fork() == 0) {
        for (int left = depth; left > 1; left--) {
            pid_t child = fork();
            if (child < 0) tell(result[1], -3);
            if (child != 0) {
                waitpid(child, NULL, 0);
                _exit(0);
            }
        }
        tell(result[1], ask_anew());
        _exit(0);
    }
    say("deep", told(result[0]));
    close(result[0]), close(result[1]);
    wait(NULL);
}

/* The last process of a chain connects while its ancestors end, each at a moment of its own. They wait for
 * the end of a pipe that only the last one holds open. */
static void dying(int depth, int spread_us, int connects_first) {
    int result[2], hold[2];
    char byte;
    if (pipe(result) || pipe(hold)) _exit(9);
    if (fork() == 0) {
        /* Whoever ends is gone at once, without being waited for. */
        signal(SIGCHLD, SIG_IGN);
        for (int left = depth; left > 1; left--) {
            pid_t child = fork();
            if (child < 0) tell(result[1], -3);
            if (child != 0) {
                close(hold[1]);
                srand(getpid());
                if (read(hold[0], &byte, 1) == 0) pause_us(rand() % (spread_us + 1));
                _exit(0);
            }
        }
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        srand(getpid());
        int is_connected = connects_first && connected(fd);
        close(hold[1]);
        if (!connects_first) {
            pause_us(rand() % (spread_us + 1));
            is_connected = connected(fd);
        }
        tell(result[1], is_connected ? ask(fd) : -1);
        _exit(0);
    }
    close(hold[0]), close(hold[1]);
    say("dying", told(result[0]));
    close(result[0]), close(result[1]);
    wait(NULL);
}

/* A child connects and ends; its parent asks over that connection. */
static void ended(int is_waited_for) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    pid_t child = fork();
    if (child == 0) _exit(!connected(fd));
    siginfo_t info;
    waitid(P_PID, child, &info, WEXITED | (is_waited_for ? 0 : WNOWAIT));
    say(is_waited_for ? "ended" : "zombie", ask(fd));
    close(fd);
    if (!is_waited_for) waitpid(child, NULL, 0);
}

/* A child connects, hands the connection to its parent as a message, and ends. */
static void passed(void) {
    int pair[2], fd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) _exit(9);
    char byte = 0;
    union {
        char space[CMSG_SPACE(sizeof fd)];
        struct cmsghdr aligned;
    } control = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    if (fork() == 0) {
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (!connected(fd)) _exit(1);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        _exit(sendmsg(pair[0], &message, 0) != 1);
    }
    close(pair[0]);
    if (recvmsg(pair[1], &message, 0) == 1) memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    wait(NULL);
    say("passed", ask(fd));
    close(fd), close(pair[1]);
}

/* A process in a session of its own asks when its parent has ended. */
static void orphan(void) {
    int result[2];
    if (pipe(result)) _exit(9);
    if (fork() == 0) {
        setsid();
        pid_t parent = getpid();
        if (fork() == 0) {
            while (getppid() == parent) pause_us(100);
            tell(result[1], ask_anew());
        }
        _exit(0);
    }
    wait(NULL);
    say("orphan", told(result[0]));
    close(result[0]), close(result[1]);
}

/* A thread asks when the first thread of its process has ended. */
static int thread_result;
static void *in_thread(void *unused) {
    pause_us(20000);
    tell(thread_result, ask_anew());
    _exit(0);
    return unused;
}

static void thread(void) {
    int result[2];
    if (pipe(result)) _exit(9);
    thread_result = result[1];
    if (fork() == 0) {
        pthread_t other;
        if (pthread_create(&other, NULL, in_thread, NULL)) _exit(9);
        pthread_exit(NULL);
    }
    say("thread", told(result[0]));
    close(result[0]), close(result[1]);
    wait(NULL);
}

/* The first process of a new PID namespace asks, and one that it adopts. */
static void namespaced(void) {
    int result[2];
    if (pipe(result)) _exit(9);
    if (fork() == 0) {
        if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) {
            tell(result[1], -4), tell(result[1], -4);
            _exit(0);
        }
        if (fork() == 0) {
            tell(result[1], ask_anew());
            if (fork() == 0) {
                if (fork() == 0) {
                    while (getppid() != 1) pause_us(100);
                    tell(result[1], ask_anew());
                }
                _exit(0);
            }
            while (wait(NULL) > 0) continue;
        } else {
            wait(NULL);
        }
        _exit(0);
    }
    int first = told(result[0]), adopted = told(result[0]);
    if (first == -4) {
        if (write(1, "namespaced not-permitted\n", 25) != 25) _exit(9);
    } else {
        say("namespaced", first), say("namespaced", adopted);
    }
    close(result[0]), close(result[1]);
    wait(NULL);
}

/* A process connects and then runs another program, which asks. */
static void executed(const char *own) {
    if (fork() == 0) {
        char number[20];
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (!connected(fd)) _exit(1);
        snprintf(number, sizeof number, "%d", fd);
        execl(own, own, address.sun_path, victim, number, (char *)NULL);
        _exit(1);
    }
    wait(NULL);
}

int main(int count, char **words) {
    if (count < 4) return 2;
    strncpy(address.sun_path, words[1], sizeof address.sun_path - 1);
    victim = words[2];
    if (count == 4) {
        say("executed", ask(atoi(words[3])));
        return 0;
    }
    say("plain", ask_anew());
    orphan();
    thread();
    ended(1);
    ended(0);
    passed();
    executed(words[0]);
    namespaced();
    deep(60);
    deep(atoi(words[3]));
    for (int attempt = 0; attempt < atoi(words[4]); attempt++) {
        /* From all at once to one after the other. */
        static const int spreads[] = {0, 100, 300, 1000, 3000};
        dying(60, spreads[attempt % 5], attempt / 5 % 2);
    }
    if (write(1, "done\n", 5) != 5) return 9;
    while (1) pause();
}
