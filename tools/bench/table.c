#include "tools/bench/table.h"

#include <math.h>
#include <string.h>

void table_number(double value, char ret_text[TABLE_NUMBER])
{
    if (value >= 999.5) {
        char plain[TABLE_NUMBER];
        int length = snprintf(plain, sizeof(plain), "%.0f", value);
        char *out = ret_text;
        for (int i = 0; i < length && out < ret_text + TABLE_NUMBER - 2; i++) {
            *out++ = plain[i];
            if ((length - i) % 3 == 1 && i + 1 < length) {
                *out++ = ',';
            }
        }
        *out = '\0';
        return;
    }
    int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
    snprintf(ret_text, TABLE_NUMBER, "%.*f", decimals, value);
}

static void print_spread(FILE *stream, struct spread spread, int width)
{
    char least[TABLE_NUMBER], greatest[TABLE_NUMBER], text[2 * TABLE_NUMBER + 4];
    table_number(spread.least, least);
    table_number(spread.greatest, greatest);
    snprintf(text, sizeof(text), "%s..%s", least, greatest);
    fprintf(stream, " %*s", width, text);
}

static void print_number(FILE *stream, double value, int width)
{
    char text[TABLE_NUMBER];
    table_number(value, text);
    fprintf(stream, " %*s", width, text);
}

static void print_header(struct table *table, enum plan_measure measure)
{
    FILE *stream = table->stream;
    fprintf(stream, "%s", table->has_header ? "\n" : "");
    if (measure == PLAN_LATENCY) {
        fprintf(stream,
                "Latency in us, medians over the runs; in brackets the median's spread\n\n"
                "%-13s %-6s %-5s %8s %8s %8s %15s %8s %8s %8s %8s %13s\n",
                "operation", "link", "mode", "size", "min", "p50", "(spread)", "p90", "p99",
                "p99.9", "max", "CPU us c+s");
    } else {
        fprintf(stream,
                "Bandwidth and rate, medians over the runs\n\n"
                "%-13s %-6s %-9s %-5s %8s %8s %15s %10s %13s\n",
                "operation", "link", "direction", "mode", "size", "MB/s", "(spread)", "1000/s",
                "CPU us c+s");
    }
    table->has_header = true;
    table->measure = measure;
}

static void print_cpu(FILE *stream, const struct result *result)
{
    char client[TABLE_NUMBER], server[TABLE_NUMBER], text[2 * TABLE_NUMBER + 4];
    table_number(result_cpu_us(result, false).median, client);
    table_number(result_cpu_us(result, true).median, server);
    snprintf(text, sizeof(text), "%s+%s", client, server);
    fprintf(stream, " %13s", text);
}

static void print_latency(FILE *stream, const struct result *result)
{
    for (unsigned i = 0; i < RESULT_POINTS; i++) {
        if (!result_point_is_known(result, i)) {
            fprintf(stream, " %8s", "-");
            continue;
        }
        struct spread spread = result_latency_us(result, i);
        print_number(stream, spread.median, 8);
        if (strcmp(result_point_name(i), "p50") == 0) {
            print_spread(stream, spread, 15);
        }
    }
}

void table_add(struct table *table, const struct result *result)
{
    const struct plan_case *item = &result->item;
    FILE *stream = table->stream;
    char size[PLAN_SIZE_TEXT];
    if (!table->has_header || table->measure != item->measure) {
        print_header(table, item->measure);
    }
    plan_size_text(item->size, size);
    fprintf(stream, "%-13s %-6s ", plan_operation_name(item->operation),
            result->link != NULL ? result->link : "-");
    if (item->measure == PLAN_BANDWIDTH) {
        fprintf(stream, "%-9s ", plan_direction_name(item->both_ways));
    }
    fprintf(stream, "%-5s %8s", plan_mode_name(item->is_blocked), size);
    if (result->unsupported[0] != '\0') {
        fprintf(stream, "  not to be had: %s\n", result->unsupported);
        return;
    }
    if (item->measure == PLAN_LATENCY) {
        print_latency(stream, result);
    } else {
        struct spread rate = result_rates(result);
        double scale = (double)item->size * 1e-6;
        print_number(stream, rate.median * scale, 8);
        print_spread(stream, (struct spread){0, rate.least * scale, rate.greatest * scale}, 15);
        print_number(stream, rate.median * 1e-3, 10);
    }
    print_cpu(stream, result);
    const char *doubt = result_doubt(result);
    fprintf(stream, "%s%s\n", doubt != NULL ? "  " : "", doubt != NULL ? doubt : "");
    fflush(stream);
}
