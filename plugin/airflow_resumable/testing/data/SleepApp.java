// SPDX-FileCopyrightText: 2026 The airflow-resumable authors
// SPDX-License-Identifier: Apache-2.0

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/** Has an executor count three numbers and sleeps: SleepApp SECONDS|GATE-FILE [MARKER-FILE|-] [fail]. */
public class SleepApp {
    // A gate that nobody opens ends the sleep at last.
    private static final long LONGEST_SLEEP = 600_000;

    public static void main(String[] args) throws Exception {
        try (JavaSparkContext spark = new JavaSparkContext(new SparkConf())) {
            String application = spark.sc().applicationId();
            if (args.length > 1 && !args[1].equals("-")) {
                // One line for each start: two lines are a job that ran twice.
                Files.writeString(Path.of(args[1]), ProcessHandle.current().pid() + " " + application + "\n",
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            }
            System.out.println("COUNT=" + spark.parallelize(List.of(1, 2, 3), 1).count() + " APP=" + application);
            sleep(args[0]);
        }
        if (args.length > 2 && args[2].equals("fail")) {
            System.exit(3);
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
