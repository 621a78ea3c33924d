/* table_test.c - the table against a plain array, with keys that collide, from one and from four threads. */
#include "check.h"
#include "core/table.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 3000, STEPS = 400000 };
static struct gaia_table table;

/* Few distinct homes: many keys differ only in bits that the hash carries far. */
static uint64_t key(unsigned i) {
    return i % 3 == 0 ? (uint64_t)i << 21 : i % 3 == 1 ? (uint64_t)i << 44 : i;
}

static bool nothing_left(const struct gaia_entry *e) { return e->link == 0; }
static bool count_all(const struct gaia_entry *e, void *sum) {
    *(uint64_t *)sum += e->size;
    return false;
}
static bool drop_odd(const struct gaia_entry *e, void *sum) {
    if (e->size % 2 == 0)
        return false;
    *(uint64_t *)sum += e->size;
    return true;
}

static void against_a_model(void) {
    static uint64_t model[KEYS];
    unsigned seed = 1;
    uint64_t live = 0;
    struct gaia_entry entry;
    for (int step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)rand_r(&seed) % KEYS;
        if (model[i] == 0) {
            model[i] = (uint64_t)rand_r(&seed) + 1;
            struct gaia_entry put = {.key = key(i), .size = model[i], .kind = GAIA_KIND_POINTER};
            CHECK(gaia_table_put(&table, &put));
            live += model[i];
        } else if (rand_r(&seed) % 2) {
            CHECK(gaia_table_find(&table, GAIA_KIND_POINTER, key(i), &entry) && entry.size == model[i]);
            CHECK(!gaia_table_find(&table, GAIA_KIND_HANDLE, key(i), &entry)); /* another family */
        } else {
            CHECK(gaia_table_take(&table, GAIA_KIND_POINTER, key(i), &entry) && entry.size == model[i]);
            CHECK(!gaia_table_take(&table, GAIA_KIND_POINTER, key(i), &entry));
            live -= model[i];
            model[i] = 0;
        }
    }
    uint64_t sum = 0, dropped = 0, left = 0;
    gaia_table_walk(&table, count_all, &sum);
    CHECK(sum == live);
    gaia_table_walk(&table, drop_odd, &dropped);
    gaia_table_walk(&table, count_all, &left);
    CHECK(dropped + left == live);
    for (unsigned i = 0; i < KEYS; i++)
        CHECK(gaia_table_take(&table, GAIA_KIND_POINTER, key(i), &entry) ==
              (model[i] != 0 && model[i] % 2 == 0));
}

static void references(void) {
    struct gaia_entry entry = {.key = 7, .size = 100, .link = 2, .kind = GAIA_KIND_HANDLE};
    CHECK(gaia_table_put(&table, &entry));
    CHECK(gaia_table_change(&table, GAIA_KIND_HANDLE, 7, -(uint64_t)1, 0, nothing_left, &entry) &&
          entry.link == 1);
    CHECK(gaia_table_change(&table, GAIA_KIND_HANDLE, 7, -(uint64_t)1, 0, nothing_left, &entry) &&
          entry.link == 0);
    CHECK(!gaia_table_change(&table, GAIA_KIND_HANDLE, 7, 1, 0, nothing_left, &entry));
}

static void *worker(void *argument) {
    uint64_t base = (uint64_t)(uintptr_t)argument << 32;
    struct gaia_entry entry;
    for (int round = 0; round < 20; round++) {
        for (uint64_t i = 1; i <= 2000; i++) {
            struct gaia_entry put = {.key = base + (i << 9), .size = i, .kind = GAIA_KIND_POINTER};
            CHECK(gaia_table_put(&table, &put));
        }
        for (uint64_t i = 2000; i >= 1; i--)
            CHECK(gaia_table_take(&table, GAIA_KIND_POINTER, base + (i << 9), &entry) && entry.size == i);
    }
    return NULL;
}

int main(void) {
    against_a_model();
    references();
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, worker, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    uint64_t sum = 0;
    gaia_table_walk(&table, count_all, &sum);
    CHECK(sum == 0);
    puts("table: good");
    return 0;
}
