/* config.c - finds and reads sim.conf. */
#define _GNU_SOURCE
#include "config.h"
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_config config;
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint64_t sim_hash(const void *bytes, uint64_t size, uint64_t seed) {
    const unsigned char *b = bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (uint64_t i = 0; i < size; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    h = (h ^ (h >> 31)) * UINT64_C(0x7fb5d329728ea185); /* FNV alone spreads the last bytes badly */
    return h ^ (h >> 29);
}

void sim_uuid_text(const unsigned char u[16], char out[41]) {
    snprintf(out, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

static bool uuid_from_text(const char *text, unsigned char out[16]) {
    int n = 0;
    if (strncmp(text, "GPU-", 4) == 0)
        text += 4;
    for (; n < 16; n++) {
        if (*text == '-')
            text++;
        if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
            return false;
        char two[3] = {text[0], text[1], 0};
        out[n] = (unsigned char)strtoul(two, NULL, 16);
        text += 2;
    }
    return *text == 0;
}

static bool number(const char *text, uint64_t most, uint64_t *out) {
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *out = strtoull(text, &end, 0);
    return errno == 0 && *end == 0 && *out <= most;
}

static bool small(const char *text, int32_t *out) {
    uint64_t n;
    if (strcmp(text, "-1") == 0) {
        *out = -1;
        return true;
    }
    if (!number(text, 1000000, &n))
        return false;
    *out = (int32_t)n;
    return true;
}

static bool count(const char *text, uint64_t most, uint32_t *out) {
    uint64_t n;
    if (!number(text, most, &n) || n == 0)
        return false;
    *out = (uint32_t)n;
    return true;
}

/* one property of cards first .. last */
static bool card_property(unsigned first, unsigned last, const char *key, const char *value) {
    for (unsigned i = first; i <= last; i++) {
        struct sim_card *c = &config.machine.card[i];
        int used = 0;
        bool good;
        if (strcmp(key, "name") == 0) {
            good = *value && strlen(value) < sizeof c->name;
            if (good)
                strncpy(c->name, value, sizeof c->name);
        } else if (strcmp(key, "memory") == 0) {
            good = number(value, UINT64_C(1) << 46, &c->memory) && c->memory > 0;
        } else if (strcmp(key, "reserved") == 0) {
            good = number(value, UINT64_C(1) << 46, &c->reserved);
        } else if (strcmp(key, "context") == 0) {
            good = number(value, UINT64_C(1) << 46, &c->context);
        } else if (strcmp(key, "compute") == 0) {
            good = sscanf(value, "%d.%d%n", &c->major, &c->minor, &used) == 2 && value[used] == 0;
        } else if (strcmp(key, "numa") == 0) {
            good = small(value, &c->numa) && c->numa < 64;
        } else if (strcmp(key, "switch") == 0) {
            good = small(value, &c->pcie_switch);
        } else if (strcmp(key, "speed") == 0) {
            good = small(value, &c->speed);
        } else if (strcmp(key, "multiprocessors") == 0) {
            good = count(value, 4096, &c->multiprocessors);
        } else if (strcmp(key, "blocks_per_multiprocessor") == 0) {
            good = count(value, 64, &c->resident);
        } else if (strcmp(key, "uuid") == 0) {
            good = first == last && uuid_from_text(value, c->uuid);
        } else if (strcmp(key, "pci") == 0) {
            good = first == last && sscanf(value, "%x:%x%n", &c->domain, &c->bus, &used) == 2 &&
                   value[used] == 0 && c->bus < 256;
        } else {
            good = false;
        }
        if (!good)
            return false;
    }
    return true;
}

static bool level_from_text(const char *text, uint8_t *out) {
    static const char *const names[] = {"internal", "single", "multiple", "hostbridge", "node", "system"};
    for (unsigned i = 0; i < 6; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (uint8_t)(10 * i);
            return true;
        }
    return false;
}

/* lines that name two cards: link, level, p2p */
static bool pair(const char *key, const char *value) {
    unsigned a, b;
    char word[32];
    int used = 0;
    uint8_t v;
    if (sscanf(value, "%u %u %31s%n", &a, &b, word, &used) != 3 || value[used] || a >= SIM_CARDS ||
        b >= SIM_CARDS || a == b)
        return false;
    if (strcmp(key, "link") == 0) {
        uint64_t n;
        if (!number(word, 18, &n))
            return false;
        config.machine.links[a][b] = config.machine.links[b][a] = (uint8_t)n;
    } else if (strcmp(key, "level") == 0) {
        if (!level_from_text(word, &v))
            return false;
        config.machine.level[a][b] = config.machine.level[b][a] = v;
    } else {
        if (strcmp(word, "on") != 0 && strcmp(word, "off") != 0)
            return false;
        config.machine.p2p[a][b] = config.machine.p2p[b][a] = strcmp(word, "on") == 0;
    }
    return true;
}

static bool text(char *out, size_t size, const char *value) {
    if (!*value || strlen(value) >= size)
        return false;
    strcpy(out, value);
    return true;
}

static bool setting(const char *key, const char *value) {
    uint64_t n;
    unsigned card;
    int used = 0;
    if (strcmp(key, "cards") == 0) {
        if (!number(value, SIM_CARDS, &n))
            return false;
        config.machine.count = (uint32_t)n;
        return true;
    }
    if (sscanf(key, "card.%u.%n", &card, &used) == 1 && used > 0)
        return card < SIM_CARDS && card_property(card, card, key + used, value);
    if (strcmp(key, "link") == 0 || strcmp(key, "level") == 0 || strcmp(key, "p2p") == 0)
        return pair(key, value);
    if (strcmp(key, "nvswitch") == 0) {
        if (!number(value, 18, &n))
            return false;
        config.machine.nvswitch = (uint32_t)n;
        return true;
    }
    if (strcmp(key, "kernel_ns") == 0)
        return number(value, UINT64_MAX, &config.kernel_ns);
    if (strcmp(key, "block_ns") == 0)
        return number(value, UINT64_MAX, &config.block_ns);
    if (strcmp(key, "alternate_ms") == 0)
        return number(value, 1000000, &config.machine.alternate_ms);
    if (strcmp(key, "sample_delay_ms") == 0)
        return number(value, 1000000, &config.machine.sample_delay_ms);
    if (strcmp(key, "backed") == 0) {
        bool good = number(value, 1, &n);
        config.backed = good && n;
        return good;
    }
    if (strcmp(key, "shared") == 0) {
        bool good = number(value, 1, &n);
        config.shared = good && n;
        return good;
    }
    if (strcmp(key, "cuda") == 0) {
        bool good = number(value, 99990, &n);
        config.cuda = good ? (int)n : config.cuda;
        return good;
    }
    if (strcmp(key, "driver") == 0)
        return text(config.driver, sizeof config.driver, value);
    if (strcmp(key, "nvml") == 0)
        return text(config.nvml, sizeof config.nvml, value);
    if (strcmp(key, "state") == 0)
        return value[0] == '/' && text(config.state, sizeof config.state, value);
    return card_property(0, SIM_CARDS - 1, key, value);
}

static void problem(const char *path, int line, const char *what) {
    snprintf(config.problem, sizeof config.problem,
             "The simulated GPU's %.300s, line %d, is not understood: %.60s", path, line, what);
}

static char *trimmed(char *s) {
    while (isspace((unsigned char)*s))
        s++;
    for (char *e = s + strlen(s); e > s && isspace((unsigned char)e[-1]); e--)
        e[-1] = 0;
    return s;
}

static void read_file(const char *path) {
    char line[4400], copy[64];
    FILE *f = fopen(path, "re");
    if (!f) {
        if (errno != ENOENT)
            snprintf(config.problem, sizeof config.problem, "The simulated GPU cannot read its %.300s: %s.",
                     path, strerror(errno));
        return;
    }
    for (int n = 1; !config.problem[0] && fgets(line, sizeof line, f); n++) {
        line[strcspn(line, "#\r\n")] = 0;
        char *key = trimmed(line), *equal;
        if (!*key)
            continue;
        snprintf(copy, sizeof copy, "%s", key);
        equal = strchr(key, '=');
        if (equal)
            *equal = 0;
        if (!equal || !setting(trimmed(key), trimmed(equal + 1)))
            problem(path, n, copy);
    }
    fclose(f);
}

/* A machine is told apart by the directory of its libraries: UUIDs and the state file follow it. */
static void defaults(const char *place) {
    uint64_t seed = sim_hash(place, strlen(place), 0);
    memset(&config.machine, 0, sizeof config.machine); /* it is hashed, padding and all */
    memset(config.machine.level, 255, sizeof config.machine.level);
    config.machine.count = 2;
    for (unsigned i = 0; i < SIM_CARDS; i++) {
        struct sim_card *c = &config.machine.card[i];
        uint64_t half[2] = {sim_hash(&i, sizeof i, seed), sim_hash(&i, sizeof i, ~seed)};
        memcpy(c->uuid, half, 16);
        c->uuid[6] = (unsigned char)((c->uuid[6] & 0x0f) | 0x80); /* RFC 9562, version 8, own variant */
        c->uuid[8] = (unsigned char)((c->uuid[8] & 0x3f) | 0x80);
        strcpy(c->name, "Gaia Simulated 24GB");
        c->memory = UINT64_C(24) << 30;
        c->reserved = UINT64_C(512) << 20;
        c->context = UINT64_C(300) << 20;
        c->bus = i + 1;
        c->major = 8;
        c->minor = 9;
        c->pcie_switch = -1;
        c->speed = 1;
        c->multiprocessors = 132;
        c->resident = 8;
        for (unsigned j = 0; j < SIM_CARDS; j++)
            config.machine.p2p[i][j] = 1;
    }
    config.backed = true;
    config.cuda = 13000;
    strcpy(config.driver, "580.95.05");
    strcpy(config.nvml, "13.580.95.05");
    snprintf(config.state, sizeof config.state, "/dev/shm/gaia-sim-%u-%016llx", (unsigned)getuid(),
             (unsigned long long)seed);
}

static void load(void) {
    char place[PATH_MAX] = "/", file[PATH_MAX + 16];
    const char *named = getenv("GAIA_SIM_CONF");
    Dl_info self;
    if (named && *named) {
        snprintf(file, sizeof file, "%s", named);
        if (!realpath(named, place))
            snprintf(place, sizeof place, "%.4000s", named);
    } else {
        if (dladdr((void *)&once, &self) && self.dli_fname && realpath(self.dli_fname, place))
            *(strrchr(place, '/') ? strrchr(place, '/') : place + 1) = 0;
        snprintf(file, sizeof file, "%s/sim.conf", place);
    }
    defaults(place);
    read_file(file);
    /* What is not there says nothing of the machine: with UUIDs given, it is the same machine from wherever
     * its files are seen, as in a container. */
    for (unsigned i = config.machine.count; i < SIM_CARDS; i++)
        memset(&config.machine.card[i], 0, sizeof config.machine.card[i]);
    for (unsigned i = 0; !config.problem[0] && i < config.machine.count; i++)
        for (unsigned j = i + 1; j < config.machine.count; j++)
            if (memcmp(config.machine.card[i].uuid, config.machine.card[j].uuid, 16) == 0)
                snprintf(config.problem, sizeof config.problem,
                         "The simulated cards %u and %u have one UUID in %.300s.", i, j, file);
}

const struct sim_config *sim_config(void) {
    pthread_once(&once, load);
    return &config;
}

enum sim_level sim_level(unsigned a, unsigned b) {
    const struct sim_config *c = sim_config();
    const struct sim_card *x = &c->machine.card[a], *y = &c->machine.card[b];
    if (a == b)
        return SIM_INTERNAL;
    if (c->machine.level[a][b] != 255)
        return (enum sim_level)c->machine.level[a][b];
    if (x->pcie_switch >= 0 && x->pcie_switch == y->pcie_switch)
        return SIM_SINGLE;
    return x->numa == y->numa ? SIM_NODE : SIM_SYSTEM;
}
