-- What was run to capture the binlogs of this folder, each statement autocommitted unless it says otherwise.
-- A statement that a server does not know or refuses (XA with a table that knows no transactions ...) left no event.
create database w;
use w;
create table a (id int primary key, name varchar(100)) engine=innodb;
create table my (id int primary key, name varchar(100)) engine=myisam;
create table b (id int, name varchar(300)) engine=innodb;
set binlog_rows_query_log_events=on;                                    -- MySQL
insert into a values (1,'x'),(2,'yy'),(3,null);
begin; update a set name='zzz' where id=2; savepoint s1; insert into a values (9,'9'); rollback to s1;
insert into a values (10,'10'); release savepoint s1; commit;
insert into my values (1,'m');
begin; insert into a values (20,'t'); insert into my values (2,'n'); savepoint q; insert into my values (3,'n');
rollback to q; commit;
begin; insert into a values (21,'t'); insert into my values (4,'n'); rollback;
create table c as select * from a;
create table d engine=myisam as select * from a;
xa start 'x1'; insert into a values (30,'xa'); xa end 'x1'; xa prepare 'x1'; xa commit 'x1';
xa start 'x2','b',7; insert into a values (31,'xa'); xa end 'x2','b',7; xa prepare 'x2','b',7; xa rollback 'x2','b',7;
xa start 'x3'; insert into a values (32,'xa'); xa end 'x3'; xa commit 'x3' one phase;
begin; commit;
insert into b values (1,'b1'),(2,repeat('b',300));
begin; insert into a values (40,'m'); insert into b values (40,'m'); delete from a where id in (1,2); commit;
truncate table b;
alter table b add column z int;
insert into b values (1,'b',3);
drop table c, d;
create user 'u1'@'%' identified by 'p';
drop user 'u1'@'%';
set session binlog_format='STATEMENT';
set @v:=5;
insert into b values (rand()*0, @v, last_insert_id());
insert into b(id) values (@v);
set session binlog_format='ROW';
create temporary table tt (i int); insert into tt values (1); drop temporary table tt;
create view vv as select 1; drop view vv;
flush tables;
insert into a values (50,'after flush');
create table many (id int primary key auto_increment, v varchar(60));
-- insert into many(v) values ('row 0'), ... ('row 2999');  as one statement
set session binlog_row_image='minimal';
update many set v='q' where id<5;
delete from many where id=7;
set session binlog_row_image='full';

-- MariaDB
set session gtid_domain_id=5; insert into a values (60,'dom'); set session gtid_domain_id=0;
set global log_bin_compress=1; set global log_bin_compress_min_len=20;  -- and a new session
insert into a values (61,repeat('c',90)),(62,repeat('c',90)),(63,repeat('c',90));
update a set name=repeat('d',90) where id=61;
delete from a where id=62;
create table comp (id int primary key, name varchar(100), filler1 varchar(100), filler2 varchar(100))
    comment='a long comment that is compressed, compressed, compressed';   -- on one line
set global log_bin_compress=0;
set session binlog_alter_two_phase=1; alter table a add column k int, algorithm=copy; alter table a drop column k;
create sequence sq; select nextval(sq);

-- MySQL 9.7
set gtid_next='AUTOMATIC:tagx'; insert into a values (70,'tagged'); set gtid_next='AUTOMATIC';
set binlog_transaction_compression=on;
insert into a values (71,'zstd');
begin; insert into a values (72,'zstd'); insert into b values (72,'zstd',1); savepoint s;
insert into many(v) select v from many; commit;
create table ctas as select * from a;
xa start 'z1'; insert into a values (73,'xa'); xa end 'z1'; xa prepare 'z1'; xa commit 'z1';
set binlog_transaction_compression=off;
create table j (id int primary key, j json);
insert into j values (1,'{"a":1,"b":[1,2,3]}');
set binlog_row_value_options=PARTIAL_JSON; update j set j=json_set(j,'$.a',7) where id=1;

-- all
flush logs;
insert into a(id,name) values (80,'second file');
flush logs;
set global binlog_checksum=NONE;                                        -- begins a file
insert into a(id,name) values (81,'no checksum');
set global binlog_checksum=CRC32;                                       -- begins a file
insert into a(id,name) values (82,'checksum');
flush logs;
