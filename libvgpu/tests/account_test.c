/* account_test.c - the rule itself, on pages in memory: exactly the limit, noise, overhead, reports. */
#include "check.h"
#include "core/account.h"
#include "core/register.h"
#include <string.h>
#include <sys/mman.h>

static struct gaia_limits *limits;
static struct gaia_usage *usage;
static struct gaia_process *self;

static void clear(uint64_t limit) {
    memset((void *)limits, 0, sizeof *limits);
    memset((void *)usage, 0, sizeof *usage);
    limits->magic = GAIA_LIMITS_MAGIC;
    limits->card[0].memory_limit = limit;
    limits->card[0].memory_ceiling = 2 * limit;
    limits->card[0].memory_report = GAIA_REPORT_LIMIT;
    self->limits = limits;
    self->usage = usage;
    CHECK(gaia_register(usage, &self->identity, &self->index));
    self->place = &usage->process[self->index];
}

static void exactly_the_limit(void) {
    clear(1000);
    struct gaia_usage_card *words = gaia_claim(self, 0, 1000);
    CHECK(words && words->pending == 1000);
    gaia_settle(words, 1000, 1000);
    CHECK(words->pending == 0 && words->used == 1000);
    CHECK(!gaia_claim(self, 0, 1) && words->pending == 0);
    gaia_uncharge(self, 0, 1000);
    CHECK(gaia_claim(self, 0, 1001) == NULL && words->used == 0);
    CHECK(gaia_claim(self, 0, UINT64_MAX) == NULL && words->pending == 0); /* no wrapping round */
}

static void zero_limit_or_foreign_page_grants_nothing(void) {
    clear(0);
    CHECK(!gaia_claim(self, 0, 1));
    clear(1000);
    limits->magic = 42;
    CHECK(!gaia_claim(self, 0, 1));
}

static void overhead_replaces_context(void) {
    clear(1000);
    struct gaia_view view;
    limits->card[0].context_bytes = 300;
    usage->process[0].card[0].context = 1;
    gaia_look(limits, usage, 1, 0, &view);
    CHECK(view.settled == 300);
    limits->process[0].owner = usage->process[0].owner + 1; /* another process's figure */
    limits->process[0].overhead[0] = 450;
    gaia_look(limits, usage, 1, 0, &view);
    CHECK(view.settled == 300);
    limits->process[0].owner = usage->process[0].owner;
    gaia_look(limits, usage, 1, 0, &view);
    CHECK(view.settled == 450);
    limits->process[0].overhead[0] = 0; /* not yet measured on this card */
    gaia_look(limits, usage, 1, 0, &view);
    CHECK(view.settled == 300);
    usage->process[0].card[0].context = UINT64_MAX; /* noise is never little */
    gaia_look(limits, usage, 1, 0, &view);
    CHECK(view.settled == UINT64_MAX);
}

static void noise_is_swept_or_refuses(void) {
    clear(1000);
    usage->process[5].card[0].used = UINT64_MAX - 3; /* nobody's */
    usage->process[6].owner = 12345;
    usage->process[6].card[0].pending = 1 << 30;
    usage->high_water = UINT64_MAX;
    struct gaia_usage_card *words = gaia_claim(self, 0, 1000);
    CHECK(words);
    gaia_settle(words, 1000, 1000);
    words->used = 5; /* our own word scribbled on: frees do not wrap */
    gaia_uncharge(self, 0, 1000);
    CHECK(words->used == 0);
}

static void reports(void) {
    struct gaia_report_view report;
    clear(1000);
    usage->process[0].card[0].used = 400;
    gaia_report(limits, usage, 1, 0, 5000, 4000, &report);
    CHECK(report.total == 1000 && report.free == 600 && report.used == 400);
    gaia_report(limits, usage, 1, 0, 5000, 100, &report);
    CHECK(report.free == 100);
    gaia_report(limits, usage, 1, 0, 700, 4000, &report);
    CHECK(report.total == 700);
    limits->card[0].memory_report = GAIA_REPORT_CEILING;
    gaia_report(limits, usage, 1, 0, 5000, 4000, &report);
    CHECK(report.total == 2000 && report.free == 600);
    usage->process[0].card[0].used = 3000; /* after a shrink */
    gaia_report(limits, usage, 1, 0, 5000, 4000, &report);
    CHECK(report.free == 0 && report.used == 3000);
}

static void cards(void) {
    unsigned char uuid[16] = {1, 2, 3}, zero[16] = {0};
    clear(1000);
    CHECK(gaia_pages_card(limits, uuid) == -1 && gaia_pages_card(limits, zero) == -1);
    memcpy((void *)limits->card[7].uuid, uuid, 16);
    CHECK(gaia_pages_card(limits, uuid) == 7);
    limits->sequence = 1; /* an agent killed while writing: readers do not hang */
    CHECK(gaia_pages_card(limits, uuid) == 7);
    CHECK(gaia_pages_card(limits, (unsigned char[16]){9}) == -1);
}

int main(void) {
    limits = mmap(NULL, sizeof *limits, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    usage = mmap(NULL, sizeof *usage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    self = gaia_process_state();
    CHECK(limits != MAP_FAILED && usage != MAP_FAILED && self);
    exactly_the_limit();
    zero_limit_or_foreign_page_grants_nothing();
    overhead_replaces_context();
    noise_is_swept_or_refuses();
    reports();
    cards();
    puts("account: good");
    return 0;
}
