// A fast SSE client: N connections on one epoll loop, one request each. Prints one JSON object.
//
// usage: ssec PORT PATH [options]
//   -n N      connections (1)
//   -d TEXT   POST this JSON body (default: GET)
//   -H LINE   an extra header line, repeatable
//   -e N      a connection is done after N counted events (0: at the end of its stream)
//   -T S      give up after S seconds (60)
//   -r N      open N connections a second (0: at once, 200 a turn)
//   -a        count every event (default: only those whose data holds "step": the tool's own)
//   -l        latency from "t":<CLOCK_MONOTONIC ns> in the data
//   -s N      stall: read N bytes of each connection, then nothing until -T
//   -m S      hold the connections open for S seconds
//   -w FILE   create FILE when every connection has its response headers
//
// "bad" counts events whose "step" is not the one after the last of its connection, "failed" connections without a 200.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADERS, BODY };
enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END };

typedef struct {
    int fd, state, chunk_state, chunked, done, has_data, counted;
    long chunk_left, events, step, taken;
    char *part;  // a line, or the headers, of which the end is still missing
    long part_len, part_cap;
} Conn;

static struct {
    int port, count, rate, all, latency;
    long want, stall;
    double limit, hold;
    const char *path, *body, *ready_file;
    char headers[8192];
} opt = {.count = 1, .limit = 60};

static Conn *conns;
static int64_t first_event, last_event, read_at;
static long total, bytes, reads, comments, out_of_order;
static int opened, failed, answered, finished, ended;
static int64_t *samples;
static long sample_count, sample_cap;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void keep(Conn *c, const char *p, long n) {
    if (c->part_len + n + 1 > c->part_cap) {
        c->part_cap = (c->part_len + n + 1) * 2;
        c->part = realloc(c->part, c->part_cap);
    }
    memcpy(c->part + c->part_len, p, n);
    c->part_len += n;
    c->part[c->part_len] = 0;
}

static void finish(Conn *c) {
    if (!c->done) {
        c->done = 1;
        finished++;
    }
}

static void event(Conn *c) {
    if (c->counted) {
        c->events++;
        total++;
        last_event = read_at;
        if (!first_event) first_event = read_at;
        if (opt.want && c->events >= opt.want) finish(c);
    }
    c->has_data = c->counted = 0;
}

static void sample(int64_t sent) {
    if (sample_count == sample_cap) {
        sample_cap = sample_cap ? sample_cap * 2 : 1 << 16;
        samples = realloc(samples, sample_cap * sizeof *samples);
    }
    samples[sample_count++] = now() - sent;
}

static void line(Conn *c, const char *p, long n) {
    if (n && p[n - 1] == '\r') n--;
    if (!n) {
        if (c->has_data) event(c);
        return;
    }
    if (p[0] == ':') {
        comments++;
        return;
    }
    if (n < 5 || memcmp(p, "data:", 5)) return;
    c->has_data = 1;
    const char *q = memmem(p, n, "\"step\":", 7);
    c->counted |= opt.all || q;
    if (q) {
        long step = strtol(q + 7, 0, 10);
        if (c->step >= 0 && step != c->step + 1) out_of_order++;
        c->step = step;
    }
    if (opt.latency && (q = memmem(p, n, "\"t\":", 4))) {
        int64_t sent = strtoll(q + 4, 0, 10);
        if (sent > 0) sample(sent);
    }
}

static void body(Conn *c, const char *p, long n) {
    while (n > 0) {
        const char *end = memchr(p, '\n', n);
        if (!end) {
            keep(c, p, n);
            return;
        }
        if (c->part_len) {
            keep(c, p, end - p);
            long whole = c->part_len;
            c->part_len = 0;
            line(c, c->part, whole);
        } else {
            line(c, p, end - p);
        }
        n -= end + 1 - p;
        p = end + 1;
    }
}

// Takes headers; returns how many bytes of p belonged to them.
static long headers(Conn *c, const char *p, long n) {
    long before = c->part_len;
    keep(c, p, n);
    char *end = memmem(c->part, c->part_len, "\r\n\r\n", 4);
    if (!end) return n;
    if (strncmp(c->part + 9, "200", 3)) {
        fprintf(stderr, "answer: %.80s\n", c->part);
        failed++;
    }
    end[2] = 0;
    c->chunked = strcasestr(c->part, "transfer-encoding: chunked") != 0;
    c->state = BODY;
    c->part_len = 0;
    answered++;
    return end + 4 - c->part - before;
}

// Returns 1 at the end of the stream.
static int feed(Conn *c, const char *p, long n) {
    if (c->state == HEADERS) {
        long used = headers(c, p, n);
        p += used;
        n -= used;
    }
    if (c->state == HEADERS) return 0;
    if (!c->chunked) {
        body(c, p, n);
        return 0;
    }
    while (n > 0) {
        if (c->chunk_state == CHUNK_SIZE) {
            char ch = *p++;
            n--;
            if (ch == '\n') {
                if (!c->chunk_left) return 1;
                c->chunk_state = CHUNK_DATA;
            } else if (ch != '\r') {
                c->chunk_left = c->chunk_left * 16 + (ch <= '9' ? ch - '0' : (ch | 32) - 'a' + 10);
            }
        } else if (c->chunk_state == CHUNK_DATA) {
            long k = n < c->chunk_left ? n : c->chunk_left;
            body(c, p, k);
            p += k;
            n -= k;
            c->chunk_left -= k;
            if (!c->chunk_left) c->chunk_state = CHUNK_END;
        } else {
            if (*p++ == '\n') c->chunk_state = CHUNK_SIZE;
            n--;
        }
    }
    return 0;
}

static void open_one(int ep, const char *request) {
    Conn *c = &conns[opened++];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(opt.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->step = -1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (void *)&to, sizeof to) < 0) {
        perror("connect");
        failed++;
        answered++;
        ended++;
        finish(c);
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (write(c->fd, request, strlen(request)) < 0) perror("write");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
}

static void readable(int ep, Conn *c) {
    static char buf[1 << 20];
    long most = sizeof buf;
    if (opt.stall) {
        most = opt.stall - c->taken;
        if (most <= 0) {
            epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, 0);
            return;
        }
        if (most > (long)sizeof buf) most = sizeof buf;
    }
    ssize_t n = read(c->fd, buf, most);
    if (n < 0 && errno == EAGAIN) return;
    reads++;
    if (n > 0) {
        c->taken += n;
        bytes += n;
    }
    if (n <= 0 || feed(c, buf, n)) {
        close(c->fd);  // leaves epoll, too
        ended++;
        finish(c);
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double percentile(double part) {
    long i = sample_count * part;
    return samples[i < sample_count ? i : sample_count - 1] / 1e3;
}

static void report(int64_t start, int64_t stop) {
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    double cpu = ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
    long least = opt.count ? conns[0].events : 0, most = 0;
    for (int i = 0; i < opt.count; i++) {
        if (conns[i].events < least) least = conns[i].events;
        if (conns[i].events > most) most = conns[i].events;
    }
    printf("{\"conns\":%d,\"failed\":%d,\"answered\":%d,\"ended\":%d,\"events\":%ld,\"min_events\":%ld,\"max_events\":%ld,"
           "\"bytes\":%ld,\"reads\":%ld,\"comments\":%ld,\"bad\":%ld,\"first\":%.6f,\"last\":%.6f,\"total\":%.6f,\"client_cpu\":%.6f",
           opt.count, failed, answered, ended, total, least, most, bytes, reads, comments, out_of_order,
           first_event ? (first_event - start) / 1e9 : 0, last_event ? (last_event - start) / 1e9 : 0, (stop - start) / 1e9, cpu);
    if (sample_count) {
        qsort(samples, sample_count, sizeof *samples, ascending);
        printf(",\"samples\":%ld,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f", sample_count, percentile(.5),
               percentile(.9), percentile(.99), percentile(1));
    }
    printf("}\n");
}

static void options(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: ssec PORT PATH [options]\n");
        exit(2);
    }
    opt.port = atoi(argv[1]);
    opt.path = argv[2];
    optind = 3;
    for (int o; (o = getopt(argc, argv, "n:d:H:e:T:r:als:m:w:")) != -1;) switch (o) {
            case 'n': opt.count = atoi(optarg); break;
            case 'd': opt.body = optarg; break;
            case 'H':
                if (strlen(opt.headers) + strlen(optarg) + 3 > sizeof opt.headers) exit(2);
                strcat(strcat(opt.headers, optarg), "\r\n");
                break;
            case 'e': opt.want = atol(optarg); break;
            case 'T': opt.limit = atof(optarg); break;
            case 'r': opt.rate = atoi(optarg); break;
            case 'a': opt.all = 1; break;
            case 'l': opt.latency = 1; break;
            case 's': opt.stall = atol(optarg); break;
            case 'm': opt.hold = atof(optarg); break;
            case 'w': opt.ready_file = optarg; break;
            default: exit(2);
        }
}

static char *make_request(void) {
    char *request;
    const char *common = "Accept: text/event-stream\r\n";
    int n = opt.body ? asprintf(&request,
                                "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s%sContent-Type: application/json\r\n"
                                "Content-Length: %zu\r\n\r\n%s",
                                opt.path, opt.port, common, opt.headers, strlen(opt.body), opt.body)
                     : asprintf(&request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s%s\r\n", opt.path, opt.port, common,
                                opt.headers);
    if (n < 0) exit(1);
    return request;
}

int main(int argc, char **argv) {
    options(argc, argv);
    char *request = make_request();
    conns = calloc(opt.count, sizeof *conns);
    int ep = epoll_create1(0), told = !opt.ready_file;
    struct epoll_event ready[1024];
    int64_t start = now();
    for (;;) {
        double passed = (now() - start) / 1e9;
        if (passed > opt.limit || (opt.hold && passed > opt.hold)) break;
        int target = opt.rate ? (int)(passed * opt.rate) + 1 : opt.count;
        if (target > opened + 200) target = opened + 200;
        if (target > opt.count) target = opt.count;
        while (opened < target) open_one(ep, request);
        int n = epoll_wait(ep, ready, 1024, opened < opt.count ? 1 : 50);
        read_at = now();
        for (int i = 0; i < n; i++) readable(ep, ready[i].data.ptr);
        if (!told && answered >= opt.count) {
            FILE *f = fopen(opt.ready_file, "w");
            if (f) fclose(f);
            told = 1;
        }
        if (!opt.hold && !opt.stall && finished >= opt.count) break;
    }
    report(start, now());
    return 0;
}
