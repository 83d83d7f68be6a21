// SPDX-FileCopyrightText: 2026 The airflow-resumable authors
// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * Has an executor count three numbers and sleeps: SleepApp SECONDS|GATE-FILE [MARKER-FILE|-] [fail] [bare].
 *
 * With "bare" it has no Spark context: the driver is all that there is, and starts and ends sooner.
 */
public class SleepApp {
    // A gate that nobody opens ends the sleep at last.
    private static final long LONGEST_SLEEP = 600_000;

    public static void main(String[] args) throws Exception {
        List<String> words = List.of(args).subList(Math.min(2, args.length), args.length);
        String marker = args.length > 1 ? args[1] : "-";
        if (words.contains("bare")) {
            mark(marker, "-");
            sleep(args[0]);
        } else {
            try (JavaSparkContext spark = new JavaSparkContext(new SparkConf())) {
                String application = spark.sc().applicationId();
                mark(marker, application);
                long count = spark.parallelize(List.of(1, 2, 3), 1).count();
                System.out.println("COUNT=" + count + " APP=" + application);
                sleep(args[0]);
            }
        }
        if (words.contains("fail")) {
            System.exit(3);
        }
    }

    private static void mark(String marker, String application) throws IOException {
        if (!marker.equals("-")) {
            // One line for each start: two lines are a job that ran twice.
            Files.writeString(Path.of(marker), ProcessHandle.current().pid() + " " + application + "\n",
                    StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }
    }

    private static void sleep(String until) throws InterruptedException {
        if (!until.startsWith("/")) {
            Thread.sleep(Math.round(Double.parseDouble(until) * 1000));
            return;
        }
        long latest = System.currentTimeMillis() + LONGEST_SLEEP;
        while (!Files.exists(Path.of(until)) && System.currentTimeMillis() < latest) {
            Thread.sleep(200);
        }
    }
}
